"""Real engines as they look from outside: one package each, found by the entry point group `fleetctl.emulated`."""
