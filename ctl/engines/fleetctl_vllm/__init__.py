"""vLLM as an engine of fleetctl: `vllm serve`, flags and series of 0.29 to 0.33."""
