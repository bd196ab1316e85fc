"""`fleetctl interrupt`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.ends import Force, OverrideFreeze
from fleetctl.cli.loss_view import loss_view
from fleetctl.cli.options import DryRun, FleetOption, Output, Quiet, Yes
from fleetctl.cli.output import Format, emit
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Market
from fleetctl.operations import interrupting
from fleetctl.operations.interrupting import NodeSelection
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.units import format_count, format_duration, parse_duration_s

_ALL = "all"


def interrupt(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="REPLICA", help="A replica on a spot node, or the node.", autocompletion=suggestions.replicas
        ),
    ] = "",
    *,
    zone: Annotated[str, typer.Option("--zone", metavar="NAME", help="All spot nodes in it.")] = "",
    node: Annotated[str, typer.Option("--node", metavar="ID", help="All on this node or machine.")] = "",
    instance_type: Annotated[str, typer.Option("--type", metavar="TYPE", help="All of this instance type.")] = "",
    market: Annotated[
        str,
        typer.Option(
            "--market", metavar="MARKET", help="spot alone is all spot nodes; on-demand and all with --dry-run."
        ),
    ] = "",
    notice: Annotated[
        str, typer.Option("--notice", metavar="DURATION", help="The warning: 120s, 30s or none.")
    ] = "120s",
    override_freeze: OverrideFreeze = False,
    force: Force = False,
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Interrupt spot nodes on purpose: a drill. The fleet must not fail a request over it, given a notice.

    With --dry-run, what would be lost: replicas by lane, whether those left keep the SLO under the load of the last
    minute, requests in flight, how long the replacements take, and where they would be.
    """
    notice_s = 0.0 if notice == "none" else parse_duration_s(notice)
    site = site_of(ctx)
    name = chosen_fleet(site, fleet)
    selection = _selection(target, zone, node, instance_type, market)
    if dry_run:
        emit(loss_view(interrupting.loss_by_interruption(site, name, selection)), output)
        return
    warned = f"in {format_duration(notice_s)}" if notice_s else "now, without a notice"
    if not target:
        emit(loss_view(interrupting.loss_by_interruption(site, name, selection)), output)
    if not confirm(f"The nodes of {selection.text} in {name} will be taken {warned}. Go on?", yes=yes):
        raise typer.Exit(1)
    found = interrupting.interrupt_all(
        site, name, selection, notice_s=notice_s, override_freeze=override_freeze, force=force
    )
    ids = ", ".join(replica.id for replica in found)
    Progress(quiet=quiet).note(
        f"{format_count(len(found), 'node')} will be taken {warned}: {ids}; see what is done: fleetctl why {found[0].id}"
    )


def _selection(target: str, zone: str, node: str, instance_type: str, market: str) -> NodeSelection:
    markets = {"": Market.SPOT, _ALL: None, **{each.value: each for each in Market}}
    if market not in markets:
        raise ConfigError(f"{market!r} is no market", hint=f"markets: {', '.join([*Market, _ALL])}")
    found = NodeSelection(target=target, zone=zone, node=node, instance_type=instance_type, market=markets[market])
    if found.is_empty and not market:
        raise ConfigError("name what is to be interrupted", hint="a replica, or --zone, --node, --type, --market spot")
    return found
