"""SGLang's image: the newest release whose flags are spelt here (November 2026)."""

from __future__ import annotations

from fleetctl.ports.engine import ContainerImage

IMAGE = ContainerImage(
    image="lmsysorg/sglang:v0.5.23", entrypoint=("python3", "-m", "sglang.launch_server"), replaces=3
)
