"""TGI's image: the newest release whose flags are spelt here (November 2026)."""

from __future__ import annotations

from fleetctl.ports.engine import ContainerImage

# The image's own entry point sets up its Python first, so it stays.
IMAGE = ContainerImage(image="ghcr.io/huggingface/text-generation-inference:3.3.7", entrypoint=(), replaces=1)
