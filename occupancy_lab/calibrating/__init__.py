"""Measuring the rates of the units of this machine's GPU."""
