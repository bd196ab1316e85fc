"""Plan + templates -> files; text in, text out."""
