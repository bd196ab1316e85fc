"""The SQLite store: fleets, replicas, intents, journal."""
