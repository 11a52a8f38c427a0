"""Child processes that answer lines, the messages to them, and signals."""
