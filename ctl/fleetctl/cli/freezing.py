"""`fleetctl freeze` and `thaw`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.ends import For, UntilOption, end_of
from fleetctl.cli.options import DryRun, FleetOption, Output
from fleetctl.cli.output import Format, View, emit, lines
from fleetctl.cli.site import site_of
from fleetctl.model.desired import WHOLE_FLEET, Terms
from fleetctl.operations import freezing
from fleetctl.operations.freezing import FreezeChange
from fleetctl.operations.lookup import chosen_fleet

_Lane = Annotated[
    str,
    typer.Argument(
        metavar="LANE", help="This lane alone; left out: the whole fleet.", autocompletion=suggestions.lanes
    ),
]


def freeze(
    ctx: typer.Context,
    lane: _Lane = WHOLE_FLEET,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; everybody who is refused is told.")],
    for_: For = "",
    until: UntilOption = "",
    fleet: FleetOption = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Hold a fleet or a lane still: no scaling, no rollout, no move between lanes, nothing given back.

    What dies is replaced, notices are respected, and the ladder goes on protecting requests. Commands that would take
    something away are refused, unless --override-freeze is given. It holds until `thaw`, or the end that is given.
    """
    site = site_of(ctx)
    end = end_of(for_, until, site.clock.now())
    change = freezing.freeze(site, chosen_fleet(site, fleet), reason=reason, until=end, lane=lane, dry_run=dry_run)
    _print(change, output, dry_run=dry_run)


def thaw(
    ctx: typer.Context,
    lane: _Lane = WHOLE_FLEET,
    *,
    fleet: FleetOption = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """End a freeze; what was held back is done from now on. A fleet that is not frozen stays as it is."""
    site = site_of(ctx)
    change = freezing.thaw(site, chosen_fleet(site, fleet), lane=lane, dry_run=dry_run)
    _print(change, output, dry_run=dry_run)


def _print(change: FreezeChange, output: Format, *, dry_run: bool) -> None:
    subject = change.fleet if change.lane == WHOLE_FLEET else f"{change.fleet}/{change.lane}"
    would = " (dry run, nothing was changed)" if dry_run else ""
    emit(View(value=change, names=(subject,), sections=(lines(f"{subject}: {_text(change)}{would}"),)), output)


def _text(change: FreezeChange) -> str:
    after = _state(change.after)
    if change.before is None:
        return after if change.after is not None else f"{after}, unchanged"
    return f"{after}; before {_state(change.before)}"


def _state(terms: Terms | None) -> str:
    return "not frozen" if terms is None else f"frozen{terms.text}"
