"""How bursty arrivals were beside what was planned for, as cells and as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.verdict import Compliance
from fleetctl.units import format_duration
from fleetctl.views.table import NOTHING

if TYPE_CHECKING:
    from fleetctl.model.traffic import ArrivalBurst

BURST_COLUMNS = ">BURST_1S >PLANNED >BURST_10S >PLANNED"
_VERDICT_CLAUSES = {
    Compliance.MISSED: "its SLO was missed",
    Compliance.KEPT: "its SLO was kept all the same",
    Compliance.UNDECIDED: "whether its SLO was kept is undecided",
}


def index_text(index: float | None) -> str:
    """Return an index of dispersion; "-" where it is not known."""
    return NOTHING if index is None else f"{index:.1f}"


def burst_cells(burst: ArrivalBurst) -> tuple[str, str, str, str]:
    """Return the index of dispersion over a second and over ten, each beside the planned one."""
    measured, planned = burst.measured, burst.planned
    return (
        index_text(measured.over_1s),
        index_text(planned.over_1s if planned else None),
        index_text(measured.over_10s),
        index_text(planned.over_10s if planned else None),
    )


def measured_line(burst: ArrivalBurst | None) -> str:
    """Return how bursty a lane's arrivals have been lately, beside the plan's; empty where too few have come to tell."""
    if burst is None or burst.measured.over_1s is None:
        return ""
    planned = burst.planned
    pairs = (
        (1, burst.measured.over_1s, planned.over_1s if planned else None),
        (10, burst.measured.over_10s, planned.over_10s if planned else None),
    )
    figures = ", ".join(
        f"{index_text(found)} over {seconds} s" + (f" (planned for {index_text(wanted)})" if wanted is not None else "")
        for seconds, found, wanted in pairs
        if found is not None
    )
    surely = "; surely burstier than planned" if burst.exceeds_plan else ""
    return f"index of dispersion {figures}, of the last {format_duration(burst.seconds)}{surely}"


def burst_line(subject: str, burst: ArrivalBurst, compliance: Compliance) -> str:
    """Return that a lane's arrivals were burstier than planned, and what became of its SLO; empty where they were not."""
    planned = burst.planned
    if not burst.exceeds_plan or planned is None:
        return ""
    pairs = ((1, burst.measured.over_1s, planned.over_1s), (10, burst.measured.over_10s, planned.over_10s))
    figures = " and ".join(
        f"{index_text(found)} over {seconds} s, planned for {index_text(wanted)}"
        for seconds, found, wanted in pairs
        if found is not None
    )
    verdict_clause = _VERDICT_CLAUSES.get(compliance, "it has no SLO that was judged")
    return f"{subject}: arrivals were burstier than planned (index of dispersion {figures}); {verdict_clause}"
