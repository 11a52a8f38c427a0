"""Processes that work for this one: a child that answers lines, messages, signals."""
