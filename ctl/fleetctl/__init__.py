"""fleetctl: a terminal control plane for multi-engine LLM inference fleets."""
