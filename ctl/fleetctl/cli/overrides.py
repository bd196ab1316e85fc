"""`fleetctl scale` and `shed`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.ends import For, OverrideFreeze, Reason, UntilOption, end_of
from fleetctl.cli.options import DryRun, FleetOption, Output, Yes
from fleetctl.cli.output import Format, View, emit, lines
from fleetctl.cli.progress import confirm
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError
from fleetctl.model.ladder import LadderStep
from fleetctl.operations import overrides
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.operations.overrides import OverrideChange
from fleetctl.views.overrides import format_override, format_override_change, terms_replaced

_AUTOMATIC = "auto"
_STEPS = ", ".join(step.value for step in LadderStep)


def scale(
    ctx: typer.Context,
    lane: Annotated[
        str,
        typer.Argument(
            metavar="LANE", help="The lane; or LANE=N in one word: short=4.", autocompletion=suggestions.lanes
        ),
    ],
    replicas: Annotated[str, typer.Argument(metavar="N|auto", help="How many; auto: as the controller sees fit.")] = "",
    *,
    for_: For = "",
    until: UntilOption = "",
    reason: Reason = "",
    override_freeze: OverrideFreeze = False,
    force: Annotated[
        bool, typer.Option("--force", help="Take away more at once than half of the lane, or three replicas.")
    ] = False,
    fleet: FleetOption = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Set a lane's replicas by hand, within the profile's bounds and caps; `auto` hands it back to the controller.

    It holds until the next `up`, `scale LANE auto`, or the end that is given.
    """
    name, _, count = lane.partition("=")
    if count and replicas:
        raise ConfigError(
            f"{lane} is one lane and its replicas, and {replicas!r} is too much; nothing was changed",
            hint=f"one lane at a time: fleetctl scale {lane}",
        )
    wanted = count or replicas
    if not (wanted == _AUTOMATIC or wanted.isdecimal()):
        raise ConfigError(
            f"{wanted!r} is not a number of replicas", hint="write: fleetctl scale short=4, or short=auto"
        )
    number = None if wanted == _AUTOMATIC else int(wanted)
    site = site_of(ctx)
    change = overrides.scale(
        site,
        chosen_fleet(site, fleet),
        name,
        number,
        until=end_of(for_, until, site.clock.now()),
        reason=reason,
        override_freeze=override_freeze,
        force=force,
        dry_run=dry_run,
    )
    _print_change(change, "replicas", output, dry_run=dry_run)


def shed(
    ctx: typer.Context,
    lane: Annotated[str, typer.Argument(metavar="LANE", help="The lane.", autocompletion=suggestions.lanes)],
    *,
    step: Annotated[str, typer.Option("--step", metavar="STEP", help=f"One of: {_STEPS}.")] = "shed",
    off: Annotated[bool, typer.Option("--off", help="Let the controller choose the step again.")] = False,
    for_: For = "",
    until: UntilOption = "",
    reason: Reason = "",
    override_freeze: OverrideFreeze = False,
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Pin a lane on a step of the degradation ladder, each of which includes those before it; --off lets go at once.

    It holds until the next `up`, `shed LANE --off`, or the end that is given; then only what the lane's own figures demand at that moment stays in force.
    What a pinned step refuses is meant to be refused: no replica is started for it, and none given up.
    """
    wanted = None if off else _step(step)
    site = site_of(ctx)
    name = chosen_fleet(site, fleet)
    loss = overrides.consequence(site, name, lane, wanted)
    if loss and not dry_run and not confirm(f"{name}: {loss}. Go on?", yes=yes):
        raise typer.Exit(1)
    change = overrides.shed(
        site,
        name,
        lane,
        wanted,
        until=end_of(for_, until, site.clock.now()),
        reason=reason,
        override_freeze=override_freeze,
        dry_run=dry_run,
    )
    _print_change(change, "ladder step", output, dry_run=dry_run)


def _step(name: str) -> LadderStep:
    try:
        return LadderStep(name)
    except ValueError:
        raise ConfigError(f"{name!r} is no ladder step", hint=f"steps: {_STEPS}") from None


def _print_change(change: OverrideChange, what: str, output: Format, *, dry_run: bool) -> None:
    before, after = format_override(change.before), format_override(change.after)
    value = {
        "fleet": change.fleet,
        "subject": change.lane,
        "before": before,
        "after": after,
        "before_terms": change.before_terms,
        "after_terms": change.after_terms,
    }
    would = " (dry run, nothing was changed)" if dry_run else ""
    replaced = terms_replaced(change.before_terms, change.after_terms)
    text = f"{change.fleet}/{change.lane}: {format_override_change(what, change.before, change.after)}"
    text += f"{change.after_terms.end_text if change.after_terms else ''}{replaced}{would}"
    emit(View(value=value, names=(change.lane,), sections=(lines(text),)), output)
