"""Workflows: calls that belong together, seen as one."""
