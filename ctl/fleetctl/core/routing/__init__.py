"""Which replica takes a request: filters, scorers in [0, 1], a picker."""
