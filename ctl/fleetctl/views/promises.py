"""What is promised to tiers and kinds of workflows beside what was measured, as cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.promises import compliance_of
from fleetctl.model.slo import Validity
from fleetctl.units import format_duration, format_fraction
from fleetctl.views.canvas import PLAIN
from fleetctl.views.conditions import compliance_cell
from fleetctl.views.figures import format_measured
from fleetctl.views.table import NOTHING, Cell, Tone, cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.slo import Quantiles
    from fleetctl.model.verdict import PromiseFinding

P99 = 0.99


def promise_cell(promises: Sequence[PromiseFinding]) -> Cell:
    """Return whether all of them were kept, as a lane's verdict reads; "-" where nothing is promised."""
    is_sure = all(each.is_sure for each in promises if each.samples)
    return compliance_cell(compliance_of(promises), is_sure=is_sure, marks=PLAIN)


def good_cell(share: float | None, promises: Sequence[PromiseFinding]) -> Cell:
    """Return "98.2%/99.5%": the share of good requests, and what is promised where something is."""
    text = NOTHING if share is None else format_fraction(share)
    return _beside(text, next((each for each in promises if each.percentile is None), None))


def tail_cell(measured_s: float | None, percentile: float, promises: Sequence[PromiseFinding]) -> Cell:
    """Return "~1.4s/1s": measured, marked where it rests on few, and promised at this percentile where something is."""
    promised = next((each for each in promises if each.percentile == percentile), None)
    if measured_s is None:
        return _beside(NOTHING, promised)
    validity = promised.validity if promised is not None else Validity.OK
    return _beside(format_measured(measured_s, validity, PLAIN), promised)


def promised_percentiles(found: Quantiles, promises: Sequence[PromiseFinding]) -> tuple[Cell, ...]:
    """Return P50, P95 and P99, each beside what is promised; only the P99 asks for many samples where nothing is."""
    if not found.count:
        return cell(NOTHING), cell(NOTHING), cell(NOTHING)
    p99 = tail_cell(found.p99_s, 0.99, promises)
    if not any(each.percentile == P99 for each in promises):
        p99 = cell(format_measured(found.p99_s, found.validity, PLAIN))
    return tail_cell(found.p50_s, 0.5, promises), tail_cell(found.p95_s, 0.95, promises), p99


def _beside(text: str, promised: PromiseFinding | None) -> Cell:
    if promised is None or text == NOTHING:
        return cell(text)
    limit = format_fraction(promised.limit) if promised.percentile is None else format_duration(promised.limit)
    return cell(f"{text}/{limit}", Tone.BAD if promised.missed > promised.allowed * promised.samples else Tone.PLAIN)
