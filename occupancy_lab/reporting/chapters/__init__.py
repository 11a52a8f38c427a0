"""The chapters of a report, one a file: its numbers, its words and its picture."""
