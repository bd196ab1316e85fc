"""Open-loop load generation from traces, in a process of its own."""
