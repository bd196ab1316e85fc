"""vLLM's image: the newest release whose flags are spelt here (November 2026)."""

from __future__ import annotations

from fleetctl.ports.engine import ContainerImage

IMAGE = ContainerImage(image="vllm/vllm-openai:v0.32.0", entrypoint=("vllm", "serve"), replaces=2)
