"""Choosing a configuration by prediction, and measuring only the best predicted ones."""
