"""What the core's shells need from outside: Protocols only."""
