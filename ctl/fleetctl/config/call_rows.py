"""Calls of one workflow in a trace: the cells that name them, and which of them wait for which."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleetctl.config.csv_rows import number_from_zero
from fleetctl.errors import ConfigError
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

CALLS_MAX: Final = 1000  # of one workflow, as all of them are held until it begins
_SEPARATORS = re.compile(r"[,\s]+")
# It goes into a header as it is.
_LAWFUL = re.compile(r"[A-Za-z0-9._:@/+=~-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """A request's place in the workflow it is a call of."""

    workflow: str
    kind: str  # empty: the workflow's other rows say it, or none does
    id: str  # its name among the calls of its workflow; empty: its number there, the first is 1
    after: tuple[str, ...]  # the calls whose end it waits for
    think_s: float  # between the last of these ends, or the workflow's arrival, and this call
    where: str  # FILE:LINE


def call_row(cells: dict[str, str], where: str) -> CallRow | None:
    """Return a row's place in its workflow; None: it is a request of its own. Raises ConfigError."""
    workflow = cells.get("workflow", "")
    after = tuple(dict.fromkeys(filter(None, _SEPARATORS.split(cells.get("after", "")))))
    think_s = number_from_zero(cells.get("think") or "0", "think", where)
    if not workflow:
        for column, is_given in (("after", after), ("think", think_s)):
            if is_given:
                raise ConfigError(
                    f"{where}: {column} {cells[column]!r} but no workflow",
                    hint="name the workflow that this request is a call of, in the column workflow",
                )
        return None
    row = CallRow(
        workflow=workflow,
        kind=cells.get("kind", ""),
        id=cells.get("id", ""),
        after=after,
        think_s=think_s,
        where=where,
    )
    for column, text in (("workflow", workflow), ("kind", row.kind), ("id", row.id)):
        if text and not _LAWFUL.fullmatch(text):
            raise ConfigError(
                f"{where}: {column} {text!r} is no name of up to 64 characters A-Z a-z 0-9 . _ : @ / + = ~ -"
            )
    return row


def linked(calls: Sequence[CallRow]) -> list[tuple[int, ...]]:
    """Return for each call of one workflow the places of those it waits for.

    Raises ConfigError naming file and line for two of one name, a name that none has, and calls that wait for each other.
    """
    places: dict[str, int] = {}
    for place, call in enumerate(calls):
        name = call_name(call, place)
        if name in places:
            raise ConfigError(
                f"{call.where}: workflow {call.workflow!r} has two calls {name!r}, the first at {calls[places[name]].where}"
            )
        places[name] = place
    links = [tuple(_place(name, call, places) for name in call.after) for call in calls]
    _check_ends(calls, links)
    return links


def call_name(call: CallRow, place: int) -> str:
    """Return what others name a call by."""
    return call.id or str(place + 1)


def kind_of(calls: Sequence[CallRow]) -> str:
    """Return the kind of a workflow. Raises ConfigError where its rows say two."""
    kind = ""
    for call in calls:
        if call.kind and kind and call.kind != kind:
            raise ConfigError(
                f"{call.where}: workflow {call.workflow!r} is of kind {kind!r}, and here of {call.kind!r}"
            )
        kind = kind or call.kind
    return kind


def _place(name: str, call: CallRow, places: dict[str, int]) -> int:
    if name not in places:
        raise ConfigError(
            f"{call.where}: after {name!r} names no call of workflow {call.workflow!r}{suggest(name, places)}",
            hint=f"it has {', '.join(list(places)[:8])}{', ...' if len(places) > 8 else ''}",
        )
    return places[name]


def _check_ends(calls: Sequence[CallRow], links: list[tuple[int, ...]]) -> None:
    """Raise ConfigError where calls wait for each other: of those, the first in the file is named."""
    left = [len(link) for link in links]
    followers: list[list[int]] = [[] for _ in calls]
    for place, link in enumerate(links):
        for before in link:
            followers[before].append(place)
    ready = [place for place, count in enumerate(left) if not count]
    while ready:
        for following in followers[ready.pop()]:
            left[following] -= 1
            if not left[following]:
                ready.append(following)
    stuck = next((place for place, count in enumerate(left) if count), None)
    if stuck is not None:
        ring = _ring(stuck, links, left)
        names = " after ".join(call_name(calls[place], place) for place in ring)
        raise ConfigError(
            f"{calls[ring[0]].where}: calls of workflow {calls[ring[0]].workflow!r} wait for each other: {names}"
        )


def _ring(stuck: int, links: list[tuple[int, ...]], left: list[int]) -> list[int]:
    """Return calls that wait for each other, the last the same as the first."""
    seen: dict[int, int] = {}
    path: list[int] = []
    place = stuck
    while place not in seen:
        seen[place] = len(path)
        path.append(place)
        place = next(before for before in links[place] if left[before])
    return [*path[seen[place] :], place]
