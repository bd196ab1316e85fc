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
    if change.before is not None:
        after += f"; before {_state(change.before)}"
    elif change.after is None:
        after += ", unchanged"
    return after if change.after is not None else f"{after}{_held_still(change)}"


def _held_still(change: FreezeChange) -> str:
    """Return what a thaw leaves frozen of what was meant: the fleet round its lane, or lanes of the fleet; and what ends that."""
    still = {lane: terms for lane, terms in change.others.items() if WHOLE_FLEET in (lane, change.lane)}
    return "".join(
        f"; {'the fleet' if lane == WHOLE_FLEET else f'lane {lane}'} is still frozen{terms.text}"
        f" (end that: {freezing.thaw_command(change.fleet, lane)})"
        for lane, terms in still.items()
    )


def _state(terms: Terms | None) -> str:
    return "not frozen" if terms is None else f"frozen{terms.text}"
