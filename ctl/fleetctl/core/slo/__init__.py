"""Sketches, windows, burn rates, breach types."""
