"""How an engine serves what it has loaded, beyond sizes: what it guesses, and what it is tuned for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SpeculationMethod(StrEnum):
    """Where the tokens come from that a step checks instead of computing them one by one."""

    NONE = "none"
    NGRAM = "ngram"  # from what the prompt and the answer have said already
    EAGLE = "eagle"  # from a small head of the model's own
    EAGLE3 = "eagle3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How an engine guesses ahead."""

    method: SpeculationMethod
    tokens: int = 4  # guessed at once
    model: str = ""  # of the head: a hub id or a directory; n-grams need none


class PerformanceMode(StrEnum):
    """What an engine's kernels and graphs are chosen for."""

    BALANCED = "balanced"
    INTERACTIVITY = "interactivity"
    THROUGHPUT = "throughput"


NO_PARSER = "none"  # a profile's word for: the model writes no such thing
HUB_CACHE_ENV = "HF_HUB_CACHE"  # the variable that engines find the hub's cache by
