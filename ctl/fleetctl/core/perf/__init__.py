"""How long an engine step takes, and how much KV cache fits."""
