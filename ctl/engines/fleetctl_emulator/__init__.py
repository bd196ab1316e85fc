"""The emulator: an engine of fleetctl that is a real HTTP process timed by core/perf, and looks like another engine."""
