"""An engine look-alike: a real HTTP process timed by core/perf."""
