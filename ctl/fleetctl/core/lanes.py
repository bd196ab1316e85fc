"""Which lane a request enters: one rule for the gateway, the planner and the profile's validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fleetctl.core.admission.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.model.profile import LaneMatch


class Matching(Protocol):
    """A lane as far as its choice goes."""

    @property
    def name(self) -> str:
        """Return the name a header may give."""
        ...

    @property
    def match(self) -> LaneMatch:
        """Return which requests it takes when no header names it."""
        ...


L = TypeVar("L", bound=Matching)


class LaneChoice(Generic[L]):
    """Chooses among a profile's lanes, given in the profile's order."""

    __slots__ = ("_batch", "_by_name", "_unhinted", "edges")

    def __init__(self, lanes: Iterable[L]) -> None:
        found = tuple(lanes)
        self._by_name = {lane.name: lane for lane in found}
        self._batch = next((lane for lane in found if lane.match.batch), None)
        # Batch lanes take unhinted requests only where every lane is one.
        self._unhinted = tuple(lane for lane in found if not lane.match.batch) or found
        bounds = {0}
        for lane in found:
            bounds |= {lane.match.uncached_prompt_tokens_min or 0, lane.match.uncached_prompt_tokens_max or 0}
        # Ascending from 0: between two of these token counts the choice is the same for all.
        self.edges = tuple(sorted(bounds))

    def choose(
        self, *, header: str | None, batch_hint: bool, uncached_prompt_tokens: Callable[[str], float], stream: bool
    ) -> L | Refusal:
        """Return the lane a request enters, or why none takes it.

        A header decides alone. Else the batch hint enters the first batch lane, if there is one. Else the first lane
        whose match accepts the request. `uncached_prompt_tokens` answers per lane, because a prompt cached in one lane
        is work in another; it is asked only where a lane has a bound.
        """
        if header is not None:
            return self._by_name.get(header, Refusal.UNKNOWN_LANE)
        if batch_hint and self._batch is not None:
            return self._batch
        for lane in self._unhinted:
            match = lane.match
            if match.stream is not None and match.stream is not stream:
                continue
            low, high = match.uncached_prompt_tokens_min, match.uncached_prompt_tokens_max
            if low is None and high is None:
                return lane
            tokens = uncached_prompt_tokens(lane.name)
            if (low is None or tokens >= low) and (high is None or tokens < high):
                return lane
        return Refusal.NO_LANE

    def choose_by(self, tokens: float, *, batch_hint: bool, stream: bool) -> L | Refusal:
        """Return the lane of a request without a header whose uncached prompt tokens are the same in every lane."""
        return self.choose(header=None, batch_hint=batch_hint, uncached_prompt_tokens=lambda _: tokens, stream=stream)
