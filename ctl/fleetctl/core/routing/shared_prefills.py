"""What an engine's prompts take where several gateways send them: all that were computed while it was never without one."""

from __future__ import annotations

from typing import Final, NamedTuple

# Of shorter times the ends say more than what lies between: what others had is told ten times a second.
_SAMPLE_S: Final = 1.0


class PrefillsDone(NamedTuple):
    """What has been computed until an instant."""

    at_s: float
    own: int  # prompts of this gateway
    others: int
    tokens: int  # of all


class SharedPrefills:
    """Reads what has been computed now and then."""

    __slots__ = ("_begun", "_last_others_s", "has_others")

    def __init__(self) -> None:
        self._begun: PrefillsDone | None = None  # the engine has had prompts ever since
        self._last_others_s = -1.0  # when others' were last computed
        self.has_others = False  # prompts of others were computed lately

    def read(self, done: PrefillsDone, *, is_busy: bool) -> tuple[float, int, int] | None:
        """Return how long it took over how many prompts and tokens. None: not yet, or they were of one gateway."""
        begun = self._begun
        if begun is None or not is_busy or done.others < begun.others:
            self._begun = done if is_busy else None
            self.has_others = self.has_others and begun is not None and done.at_s - self._last_others_s < _SAMPLE_S
            return None
        if done.others > begun.others:
            self.has_others, self._last_others_s = True, done.at_s
        seconds = done.at_s - begun.at_s
        if seconds < _SAMPLE_S:
            return None
        self._begun = done
        self.has_others = done.others > begun.others
        prompts = done.own + done.others - begun.own - begun.others
        return (seconds, prompts, done.tokens - begun.tokens) if self.has_others and prompts else None
