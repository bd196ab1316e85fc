"""What is remembered: the SQLite store of fleets, replicas, intents and the journal."""
