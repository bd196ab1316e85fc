"""llama.cpp's image with CUDA: the build whose flags are spelt here (October 2026)."""

from __future__ import annotations

from fleetctl.ports.engine import ContainerImage

# The image's own entry point is its llama-server; with CPU only it is `server-` in place of `server-cuda-`.
IMAGE = ContainerImage(
    image="ghcr.io/ggml-org/llama.cpp:server-cuda-b11549", entrypoint=(), replaces=1, models="/root/.cache/llama.cpp"
)
