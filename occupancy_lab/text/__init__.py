"""Words, tables and pages, and how a terminal and a notebook show them."""
