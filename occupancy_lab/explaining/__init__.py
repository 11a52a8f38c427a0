"""Words and tables from records."""
