"""`fleetctl cost`."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

import typer

from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, OutputSection, View, emit, lines, section
from fleetctl.cli.site import site_of
from fleetctl.operations.costs import CostReport, FleetCostReport, cost_report
from fleetctl.units import format_usd, parse_duration_s
from fleetctl.views.figures import format_cost
from fleetctl.views.table import NOTHING, text_table

_FLEETS = "FLEET >NOW >CAP >SPENT >$/1M_TOKENS +COUNTED_SINCE"
_LANES = "LANE >NOW >SPENT >$/1M_TOKENS >REPLICA-HOURS >TOKENS"
_HEAD = "(head)"


def cost(
    ctx: typer.Context,
    fleet: Annotated[
        str,
        typer.Argument(
            metavar="FLEET",
            envvar="FLEETCTL_FLEET",
            help="One fleet, gone or not; left out: all there are and have been.",
        ),
    ] = "",
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="24h, 7d; left out: since the month began, UTC.")
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Show what fleets cost: dollars an hour now and against the cap, spent this month, by lane and by token.

    NOW is what `status` shows: the live replicas' prices, with the disks where the provider knows them, and the head's.
    SPENT sums it up from order to end, by the hour; a fleet that is down keeps what it has cost for a hundred days.
    Tokens are those of requests that are over, prompts and answers. It is reckoned by prices, and no invoice.
    """
    site = site_of(ctx)
    back = timedelta(seconds=parse_duration_s(since)) if since else None
    found = cost_report(site, fleet=fleet, since=back)
    emit(_view(found, is_one=bool(fleet)), output)


def _view(found: CostReport, *, is_one: bool) -> View:
    names = tuple(each.fleet for each in found.fleets)
    return View(value=found, names=names, sections=tuple(_sections(found, is_one=is_one)))


def _sections(found: CostReport, *, is_one: bool) -> Iterator[OutputSection]:
    since = f"{found.since:%Y-%m-%d %H:%M} UTC"
    if not found.fleets:
        yield lines(f"Nothing has cost anything since {since}.")
        return
    if not is_one:
        total = f"{format_usd(found.usd_per_hour)}/h now, {format_usd(found.usd)} since {since}"
        yield lines(f"Together {total}")
        yield section(text_table(_FLEETS, map(_fleet_row, found.fleets)))
    for each in found.fleets if is_one or len(found.fleets) == 1 else ():
        title = f"{each.fleet}: {_now(each)}, {format_usd(each.usd)} since {since}"
        yield section(text_table(_LANES, _lane_rows(each)), title=title)
        if each.counted_since is not None:
            yield lines(f"Counted since {each.counted_since:%Y-%m-%d %H:%M} UTC.")


def _now(each: FleetCostReport) -> str:
    return format_cost(each.usd_per_hour, each.max_usd_per_hour) if each.is_there else "down"


def _fleet_row(each: FleetCostReport) -> tuple[str, ...]:
    return (
        each.fleet,
        f"{format_usd(each.usd_per_hour)}/h" if each.is_there else "down",
        NOTHING if each.max_usd_per_hour is None else format_usd(each.max_usd_per_hour),
        format_usd(each.usd),
        _usd(each.usd_per_1m_tokens),
        NOTHING if each.counted_since is None else f"{each.counted_since:%Y-%m-%d %H:%M}",
    )


def _lane_rows(each: FleetCostReport) -> Iterator[tuple[str, ...]]:
    for lane in each.lanes:
        yield (
            lane.lane,
            f"{format_usd(lane.usd_per_hour)}/h",
            format_usd(lane.usd),
            _usd(lane.usd_per_1m_tokens),
            f"{lane.replica_hours:.2f}",
            str(lane.prompt_tokens + lane.output_tokens),
        )
    if each.head_usd_per_hour or each.head_usd:
        yield _HEAD, f"{format_usd(each.head_usd_per_hour)}/h", format_usd(each.head_usd), NOTHING, NOTHING, NOTHING


def _usd(price: float | None) -> str:
    return NOTHING if price is None else format_usd(price)
