"""SGLang as an engine of fleetctl: `python3 -m sglang.launch_server`, flags and series of 0.5.23."""
