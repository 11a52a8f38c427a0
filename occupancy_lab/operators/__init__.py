"""Operators of torch that launch what is predicted to be the fastest."""
