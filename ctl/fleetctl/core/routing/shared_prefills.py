"""What an engine's prompts take where several gateways send them: all that were computed while it was never without one."""

from __future__ import annotations

from typing import Final, NamedTuple

from fleetctl.core.routing.prefill_line import PrefillLine
from fleetctl.model.allotment import OthersLoad

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


class SharedPrefillLine(PrefillLine):
    """The line of an engine that other gateways may send prompts to as well."""

    __slots__ = ("_others", "_together")

    def __init__(self, tokens_per_s: float = 0.0) -> None:
        self._others = OthersLoad()  # what the others have there
        self._together = SharedPrefills()
        super().__init__(tokens_per_s)

    def note_others(self, others: OthersLoad, now_s: float, *, prompts_done: int, tokens_done: int) -> None:
        """Take what other gateways have there for prompts that stand before the next one, in place of what they last had.

        `prompts_done` were computed for this one since it began. Where others' are computed in between, the time between
        two first tokens says nothing: then all that were computed in a second do.
        """
        before, self._others, self._others_streams = self._others, others, others.streams
        prompts, tokens = others.prompts - before.prompts, others.prompt_tokens - before.prompt_tokens
        if prompts or tokens:
            self.count += prompts
            self._tokens += tokens
            if others.prompts_done != before.prompts_done or prompts < 0:
                self.free_s = now_s + self.left_s()  # the time they took has passed already
            else:
                more_s = (prompts * self.fixed_s + tokens * self.s_per_token) * self.stretch
                self.free_s = max(now_s, self.free_s) + more_s
        done = PrefillsDone(now_s, prompts_done, others.prompts_done, tokens_done + others.prompt_tokens_done)
        sample = self._together.read(done, is_busy=self.count > 0)
        self._has_others = self._together.has_others
        if sample is not None:
            seconds, prompts, tokens = sample
            beside = max(0, self.streams - self.count)
            self._learn(tokens / prompts, seconds / prompts, beside=beside, weight=float(prompts))
