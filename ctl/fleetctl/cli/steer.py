"""`fleetctl scale`, `shed` and `interrupt`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.narrate import Narrator, confirm
from fleetctl.cli.options import DryRun, FleetOption, Output, Quiet, Yes
from fleetctl.cli.output import Format, View, emit, lines
from fleetctl.errors import ConfigError
from fleetctl.model.ladder import LadderStep
from fleetctl.operations import steering
from fleetctl.operations.access import chosen_fleet
from fleetctl.operations.words import step_name, step_of
from fleetctl.units import format_duration, parse_duration_s

_AUTOMATIC = "auto"
_STEPS = ", ".join(step_name(step) for step in LadderStep)


def scale(
    lane: Annotated[
        str,
        typer.Argument(
            metavar="LANE", help="The lane; or LANE=N in one word: short=4.", autocompletion=suggestions.lanes
        ),
    ],
    replicas: Annotated[str, typer.Argument(metavar="N|auto", help="How many; auto: as the controller sees fit.")] = "",
    *,
    fleet: FleetOption = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Set a lane's replicas by hand, within the profile's bounds and caps; `auto` hands it back to the controller.

    It holds until the next `up` or `scale LANE auto`.
    """
    name, _, count = lane.partition("=")
    wanted = count or replicas
    if not (wanted == _AUTOMATIC or wanted.isdecimal()):
        raise ConfigError(
            f"{wanted!r} is not a number of replicas", hint="write: fleetctl scale short=4, or short=auto"
        )
    number = None if wanted == _AUTOMATIC else int(wanted)
    _told(steering.scale(chosen_fleet(fleet), name, number, dry_run=dry_run), "replicas", output, dry_run=dry_run)


def shed(
    lane: Annotated[str, typer.Argument(metavar="LANE", help="The lane.", autocompletion=suggestions.lanes)],
    *,
    step: Annotated[str, typer.Option("--step", metavar="STEP", help=f"One of: {_STEPS}.")] = "shed",
    off: Annotated[bool, typer.Option("--off", help="Let the controller choose the step again.")] = False,
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Pin a lane on a step of the degradation ladder, each of which includes those before it; --off lets go.

    It holds until the next `up` or `shed LANE --off`.
    """
    wanted = None if off else step_of(step)
    if not off and wanted is None:
        raise ConfigError(f"{step!r} is no ladder step", hint=f"steps: {_STEPS}")
    name = chosen_fleet(fleet)
    loss = steering.consequence(name, lane, wanted)
    if loss and not dry_run and not confirm(f"{name}: {loss}. Go on?", yes=yes):
        raise typer.Exit(1)
    _told(steering.shed(name, lane, wanted, dry_run=dry_run), "ladder step", output, dry_run=dry_run)


def interrupt(
    target: Annotated[
        str,
        typer.Argument(
            metavar="REPLICA", help="A replica on a spot node, or the node.", autocompletion=suggestions.replicas
        ),
    ],
    *,
    notice: Annotated[
        str, typer.Option("--notice", metavar="DURATION", help="The warning: 120s, 30s or none.")
    ] = "120s",
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Interrupt a spot node on purpose: a drill. The fleet must not fail a request over it, given a notice."""
    notice_s = 0.0 if notice == "none" else parse_duration_s(notice)
    name = chosen_fleet(fleet)
    warned = f"in {format_duration(notice_s)}" if notice_s else "now, without a notice"
    if not dry_run and not confirm(f"The node of {target} in {name} will be taken {warned}. Go on?", yes=yes):
        raise typer.Exit(1)
    replica = steering.interrupt(name, target, notice_s=notice_s, dry_run=dry_run)
    verb = "would be" if dry_run else "will be"
    Narrator(quiet=quiet).say(
        f"{replica.id} {verb} taken {warned}; see what is done about it: fleetctl why {replica.id}"
    )


def _told(steered: steering.Steered, what: str, output: Format, *, dry_run: bool) -> None:
    would = " (dry run, nothing was changed)" if dry_run else ""
    same = steered.before == steered.after
    change = f"{steered.after}, unchanged" if same else f"{steered.before} -> {steered.after}"
    text = f"{steered.fleet}/{steered.subject}: {what} {change}{would}"
    emit(View(value=steered, names=(steered.subject,), sections=(lines(text),)), output)
