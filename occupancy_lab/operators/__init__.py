"""Operators of torch that launch the configuration predicted to be fastest."""
