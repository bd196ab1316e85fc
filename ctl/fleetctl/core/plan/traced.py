"""The requests of a trace as planning has them: columns, as there may be millions, that read as a sequence of requests."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from fleetctl.core.busiest import busiest_rps

if TYPE_CHECKING:
    from collections.abc import Iterator


class RequestHints(NamedTuple):
    """What a request says of itself beside its lengths; None and "": the profile's shares say it."""

    model: str = ""  # by its own name
    lane: str = ""
    stream: bool | None = None
    batch: bool | None = None


ANYTHING = RequestHints()


class TracedRequest(NamedTuple):
    """One request of a trace, as far as planning goes."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # of its prompt, in a cache that forgets nothing
    hints: RequestHints = ANYTHING


class TracedRequests(Sequence[TracedRequest]):
    """All of them, in order of arrival; nobody changes the columns."""

    __slots__ = ("_cached", "arrival_s", "has_cached", "hint_of", "hints", "output_tokens", "peak_rps", "prompt_tokens")

    def __init__(  # noqa: PLR0913  # its columns
        self,
        *,
        arrival_s: Sequence[float],
        prompt_tokens: Sequence[int],
        output_tokens: Sequence[int],
        cached_tokens: Sequence[int] = (),
        hints: Sequence[RequestHints] = (ANYTHING,),
        hint_of: Sequence[int] = (),
        peak_rps: float | None = None,
    ) -> None:
        """`peak_rps` is that of the busiest minute, where it is known already. `hint_of` is each request's place in `hints`; left out where all are alike. No `cached_tokens`: nobody tells what is cached."""
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self._cached = cached_tokens
        self.has_cached = len(cached_tokens) > 0  # a trace that tells what is cached tells it of every request
        self.hints = tuple(hints)
        self.hint_of = hint_of or array("l", bytes(array("l").itemsize * len(arrival_s)))
        self.peak_rps = peak_rps if peak_rps is not None else busiest_rps(arrival_s) if arrival_s else 0.0

    @classmethod
    def of(cls, rows: Sequence[TracedRequest]) -> TracedRequests:
        """Return requests that are at hand one by one, in any order, as columns. Without a cached token among them nobody tells."""
        if isinstance(rows, TracedRequests):
            return rows
        rows = sorted(rows, key=lambda row: row.arrival_s)
        hints: dict[RequestHints, int] = {}
        hint_of = [hints.setdefault(row.hints, len(hints)) for row in rows]
        cached = [row.cached_tokens for row in rows]
        return cls(
            arrival_s=[row.arrival_s for row in rows],
            prompt_tokens=[row.prompt_tokens for row in rows],
            output_tokens=[row.output_tokens for row in rows],
            cached_tokens=cached if any(cached) else (),
            hints=tuple(hints),
            hint_of=hint_of,
        )

    @property
    def cached_tokens(self) -> Sequence[int]:
        """What is cached of each."""
        return self._cached or array("q", bytes(8 * len(self)))

    def __len__(self) -> int:
        return len(self.arrival_s)

    @overload
    def __getitem__(self, place: int) -> TracedRequest: ...
    @overload
    def __getitem__(self, place: slice) -> list[TracedRequest]: ...
    def __getitem__(self, place: int | slice) -> TracedRequest | list[TracedRequest]:
        """Return one, or several as a list."""
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        return TracedRequest(
            self.arrival_s[place],
            self.prompt_tokens[place],
            self.output_tokens[place],
            self._cached[place] if self._cached else 0,
            self.hints[self.hint_of[place]],
        )

    def __iter__(self) -> Iterator[TracedRequest]:
        return map(self.__getitem__, range(len(self)))
