"""llama.cpp as an engine of fleetctl: `llama-server`, or the same server from PyPI's `xllamacpp`; flags and series of b11549."""
