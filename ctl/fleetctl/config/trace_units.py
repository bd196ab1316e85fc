"""What arrives together in a trace: a request, or all calls of a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.config.call_rows import CALLS_MAX
from fleetctl.config.trace import TraceRow, read_rows
from fleetctl.errors import ConfigError
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


def read_units(
    path: Path, *, tiers: Collection[str] = (), kinds: Collection[str] = (), models: Collection[str] = ()
) -> Iterator[tuple[TraceRow, ...]]:
    """Yield each request alone, and the rows of each workflow together, in the file's order; one unit is held at a time.

    Of `tiers`, of `models` and of `kinds` (of workflows), where there are any, each that is named must be one. Raises ConfigError naming file
    and line, also where a workflow's rows do not stand together or are two clients', NotFoundError.
    """
    unit: list[TraceRow] = []
    begun: dict[str, str] = {}  # workflow -> where it began
    for row in read_rows(path, tiers=tiers, models=models):
        call = row.call
        if unit and (call is None or unit[0].call is None or call.workflow != unit[0].call.workflow):
            yield tuple(unit)
            unit = []
        if call is None:
            yield (row,)
            continue
        if kinds and call.kind and call.kind not in kinds:
            known = ", ".join(kinds)
            raise ConfigError(
                f"{call.where}: no kind {call.kind!r} of workflows{suggest(call.kind, kinds)}",
                hint=f"there are {known}",
            )
        if not unit:
            _check_new(call.workflow, call.where, begun)
            begun[call.workflow] = call.where
        elif len(unit) >= CALLS_MAX:
            raise ConfigError(f"{call.where}: workflow {call.workflow!r} has more than {CALLS_MAX} calls")
        elif row.client != unit[0].client:
            raise ConfigError(
                f"{call.where}: workflow {call.workflow!r} is {_owner(unit[0])}, and here {_owner(row)}",
                hint="an id is its client's, so a gateway takes these for two workflows: name them differently, or one client",
            )
        unit.append(row)
    if unit:
        yield tuple(unit)


def _owner(row: TraceRow) -> str:
    return f"client {row.client!r}'s" if row.client else "of no client"


def _check_new(workflow: str, where: str, begun: dict[str, str]) -> None:
    if workflow in begun:
        raise ConfigError(
            f"{where}: workflow {workflow!r} began at {begun[workflow]}, and other rows stand between",
            hint="let a workflow's rows stand together, each with the arrival_s of its first; `after` and `think` say "
            "when each call is sent",
        )
