"""Which lane a request enters: one rule for the gateway, the planner and the profile's validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fleetctl.core.admission.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.core.admission.tokens import RequestTokens
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

    @property
    def max_model_len(self) -> int:
        """Return the prompt and output tokens of one request that its engines hold; 0: not known."""
        ...


L = TypeVar("L", bound=Matching)


class LaneChoice(Generic[L]):
    """Chooses among a profile's lanes, given in the profile's order."""

    __slots__ = ("_batch", "_by_name", "_unhinted", "edges", "lanes")

    def __init__(self, lanes: Iterable[L]) -> None:
        found = self.lanes = tuple(lanes)
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
        self,
        *,
        header: str | None,
        batch_hint: bool,
        uncached_prompt_tokens: Callable[[str], float],
        stream: bool,
        request_tokens: int = 0,
    ) -> L | Refusal:
        """Return the lane a request enters, or why none takes it.

        A header decides alone. Else the batch hint enters the first batch lane, if there is one. Else the first lane
        whose match accepts the request. `uncached_prompt_tokens` answers per lane, because a prompt cached in one lane
        is work in another; it is asked only where a lane has a bound.

        No request enters a lane whose engines cannot hold its `request_tokens` of prompt and output. Where a lane would
        take it but for that, the next lane that matches and holds it does; else any that holds it, batch lanes last.
        """
        if header is not None:
            named = self._by_name.get(header)
            if named is None:
                return Refusal.UNKNOWN_LANE
            return named if _holds(named, request_tokens) else Refusal.CONTEXT_LENGTH
        if batch_hint and self._batch is not None:
            if _holds(self._batch, request_tokens):
                return self._batch
            return self._any_holding(request_tokens)
        is_matched = False
        for lane in self._unhinted:
            match = lane.match
            if match.stream is not None and match.stream is not stream:
                continue
            low, high = match.uncached_prompt_tokens_min, match.uncached_prompt_tokens_max
            if low is not None or high is not None:
                tokens = uncached_prompt_tokens(lane.name)
                if (low is not None and tokens < low) or (high is not None and tokens >= high):
                    continue
            if _holds(lane, request_tokens):
                return lane
            is_matched = True
        return self._any_holding(request_tokens) if is_matched else Refusal.NO_LANE

    def choose_holding(
        self,
        tokens: RequestTokens,
        *,
        header: str | None,
        batch_hint: bool,
        uncached_prompt_tokens: Callable[[str], float],
        stream: bool,
    ) -> L | Refusal:
        """Return the lane of a request of estimated length: one that holds the whole of it, else one that may.

        Some engines shorten an answer to what the prompt leaves. So it is refused only where the least that it can be is
        too much for every lane; in between the engine decides.
        """
        chosen = self.choose(
            header=header,
            batch_hint=batch_hint,
            uncached_prompt_tokens=uncached_prompt_tokens,
            stream=stream,
            request_tokens=tokens.expected,
        )
        if chosen is not Refusal.CONTEXT_LENGTH:
            return chosen
        return self.choose(
            header=header,
            batch_hint=batch_hint,
            uncached_prompt_tokens=uncached_prompt_tokens,
            stream=stream,
            request_tokens=tokens.least,
        )

    def _any_holding(self, request_tokens: int) -> L | Refusal:
        """Return the first lane that holds a request, whatever it matches: being served late is better than not at all."""
        by_need = sorted(self.lanes, key=lambda lane: lane.match.batch)
        return next((lane for lane in by_need if _holds(lane, request_tokens)), Refusal.CONTEXT_LENGTH)

    def choose_by(self, tokens: float, *, batch_hint: bool, stream: bool, request_tokens: int = 0) -> L | Refusal:
        """Return the lane of a request without a header whose uncached prompt tokens are the same in every lane."""
        return self.choose(
            header=None,
            batch_hint=batch_hint,
            uncached_prompt_tokens=lambda _: tokens,
            stream=stream,
            request_tokens=request_tokens,
        )


class ServingModel(Matching, Protocol):
    """A lane that says which model it serves."""

    @property
    def model(self) -> str:
        """Return its name; empty where the fleet has one."""
        ...


M = TypeVar("M", bound=ServingModel)


def choices_by_model(lanes: Iterable[M]) -> dict[str, LaneChoice[M]]:
    """Return the choice among the lanes of each model, and under "" the one among all."""
    rows = tuple(lanes)
    named = {row.model: LaneChoice(each for each in rows if each.model == row.model) for row in rows}
    return {**named, "": LaneChoice(rows)}


def _holds(lane: Matching, request_tokens: int) -> bool:
    """Whether a lane's engines hold so many tokens of one request; what is not known holds everything."""
    return request_tokens <= lane.max_model_len or not lane.max_model_len
