"""Prometheus exposition and reading, logs."""
