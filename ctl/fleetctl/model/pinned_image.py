"""What an image's name stood for when it was looked up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedImage:
    """A container's image, or a machine's, by what cannot move, kept with the name that may."""

    source: str  # as it is named: vllm/vllm-openai:v0.32.0, ssm:/a/parameter
    id: str  # what is started: vllm/vllm-openai@sha256:..., ami-0a1b2c3d

    def __str__(self) -> str:
        return f"{self.id} ({self.source})" if self.id != self.source else self.id
