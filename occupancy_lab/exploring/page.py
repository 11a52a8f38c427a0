def explore(p): p.write_text("")
