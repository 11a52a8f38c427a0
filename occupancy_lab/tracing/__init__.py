"""What a program launches: noted in its own processes, analysed in ours when it has ended."""
