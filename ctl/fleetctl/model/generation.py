"""How long an answer may get: bounds that the server sets, whatever a client's request says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CappedIs(StrEnum):
    """How an answer counts that a bound of the server has ended."""

    GOOD = "good"  # as any other: good where its lane's limits are kept
    BAD = "bad"  # a miss


class BoundReason(StrEnum):
    """Which bound of the server's ended an answer."""

    DEFAULT_MAX_TOKENS = "default_max_tokens"  # the request named no length
    MAX_TOKENS = "max_tokens"  # it named a greater one
    STOP = "stop"  # one of the server's stop sequences
    MAX_DURATION = "max_duration"  # the clock
    LOOP = "loop"  # it repeated itself


class LoopAction(StrEnum):
    """What the gateway does about an answer that only repeats itself."""

    OFF = "off"  # nobody looks
    OBSERVE = "observe"  # it is counted, and shown
    STOP = "stop"  # it is ended as well


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSpec:
    """The bounds of a lane's answers, or of a key's. None: the engine's own."""

    default_max_tokens: int | None = None  # of a request that names no length
    max_tokens: int | None = None  # of one choice; a request for more is answered up to here
    stop: tuple[str, ...] = ()  # beside the client's own
    max_duration_s: float | None = None  # from the first token to the last
    loop: LoopAction = LoopAction.OBSERVE  # a lane's; a key does not say
    capped_is: CappedIs = CappedIs.GOOD

    @property
    def is_bounding(self) -> bool:
        """Whether it asks anything of the gateway."""
        ends_loops = self.loop is LoopAction.STOP
        return bool(self.default_max_tokens or self.max_tokens or self.stop or self.max_duration_s or ends_loops)
