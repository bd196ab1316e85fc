"""`fleetctl interruptions`."""

from datetime import datetime, timedelta
from typing import Annotated

import typer

from fleetctl.cli.options import Fleet, Output
from fleetctl.cli.output import Format, View, emit, section
from fleetctl.cli.site import site_of
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.operations.interruption_history import InterruptionHistory, InterruptionRate, interruptions as history
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.units import format_duration, parse_duration_s
from fleetctl.views.figures import format_clock_time
from fleetctl.views.table import text_table

_COLUMNS = "TIME REPLICA LANE TYPE ZONE MARKET NOTICE >WARNING >IN_FLIGHT >CUT >REPLACED_IN +NODE"
_RATES = "WHERE >INTERRUPTIONS >NODE_HOURS >LOSSES PER_NODE_HOUR >EXPECTED"


def interruptions(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    since: Annotated[str, typer.Option("--since", metavar="DURATION", help="Only the last of it: 24h, 7d.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """Show which nodes were taken, with what warning, and how soon they were replaced; and rates by zone and type.

    CUT is what the node's end broke off, as the gateway counted it, and how much of that nobody answered in full: "5, 2
    lost". "~5 lost" was not counted (the gateway was restarted then): it is what was last in flight there.

    Node-hours and losses weigh less as they age, as placement weighs them. A rate is shown with the interval that holds
    it in nine cases of ten; where that spans more than a factor of ten, too little was seen to tell. EXPECTED is what placement
    goes by. A fleet that is gone keeps its history.
    """
    site = site_of(ctx)
    start = site.clock.now() - timedelta(seconds=parse_duration_s(since)) if since else None
    found = history(site, fleet or chosen_fleet(site), since=start)
    emit(_view(found, now=site.clock.now()), output)


def _view(found: InterruptionHistory, *, now: datetime) -> View:
    rates = [("By zone", found.zones), ("By type", found.types), ("By offering, as learned", found.offerings)]
    return View(
        value=found,
        names=tuple(record.replica_id for record in found.interruptions),
        sections=(
            section(text_table(_COLUMNS, (_row(record, now) for record in found.interruptions))),
            *(section(text_table(_RATES, map(_rate_row, each)), title=title) for title, each in rates if each),
        ),
    )


def _row(record: InterruptionRecord, now: datetime) -> tuple[str, ...]:
    return (
        format_clock_time(record.at, now),
        record.replica_id,
        record.lane,
        record.instance_type,
        record.zone or "-",
        record.market,
        "none" if record.notice is None else record.notice + (", after a hint" if record.was_hinted else ""),
        "-" if record.warning_s is None else format_duration(record.warning_s),
        str(record.in_flight),
        _cut(record),
        "-" if record.replaced_s is None else format_duration(record.replaced_s),
        record.node_id,
    )


def _cut(record: InterruptionRecord) -> str:
    """Return "5, 2 lost" as counted; "~5 lost" by what was in flight there, and by whether the engine goes on with streams."""
    if record.ended_at is None:
        return "-"
    if record.cut is not None and record.lost is not None:
        return f"{record.cut}, {record.lost or 'none'} lost" if record.cut else "0"
    how = "continued" if record.continues_streams else "lost"
    return f"~{record.in_flight_at_end} {how}" if record.in_flight_at_end else "0"


def _rate_row(rate: InterruptionRate) -> tuple[str, ...]:
    expected = "-" if rate.hazard_per_h is None else f"{rate.hazard_per_h:.3g}"
    counts = (str(rate.interruptions), f"{rate.held_h:.1f}", f"{rate.losses:.1f}")
    return (rate.name or "-", *counts, _per_h(rate), expected)


def _per_h(rate: InterruptionRate) -> str:
    """Return "0.2 (0.094 to 0.38)", or what little can be said."""
    if rate.losses_per_h is None or rate.losses_per_h_low is None or rate.losses_per_h_high is None:
        return "-"
    if not rate.is_telling:
        return f"too little seen; at most {rate.losses_per_h_high:.2g}"
    return f"{rate.losses_per_h:.2g} ({rate.losses_per_h_low:.2g} to {rate.losses_per_h_high:.2g})"
