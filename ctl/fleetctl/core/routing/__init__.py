"""Filters, scorers in [0, 1], pickers."""
