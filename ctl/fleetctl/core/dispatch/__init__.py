"""Which replica takes which request and when: queues, retries, continuations; no sockets, no clock of its own."""
