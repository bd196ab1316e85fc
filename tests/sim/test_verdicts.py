"""Client and fleet say the same of an incident: a breach is named within 10 s, and gone within a minute of its end.

FLEETCTL_INCIDENTS sets how many seeds are run; the campaigns are in tests/bench/verdict_campaign.py.
"""

from __future__ import annotations

import math
import os

import pytest

from fleetctl.core.slo.judge import LONG_S
from fleetctl.model.verdict import Compliance
from tests.sim.incident import Incident, IncidentKind
from tests.sim.incidents import Trial, trial

INCIDENTS = int(os.environ.get("FLEETCTL_INCIDENTS", "12"))
NAMED_S, GONE_S, AGREE_S = 10.0, 60.0, 3.0


def complaints(found: Trial) -> list[str]:
    """Return what is wrong with a trial."""
    wrong = []
    wrong += _unnamed(found)
    if found.gone_s > GONE_S and found.incident.kind is not IncidentKind.CALM:
        wrong.append(f"gone {found.gone_s:.0f} s after the end")
    # At the edge of certainty one request decides, and it may be in one side's window and not in the other's.
    if (found.disagreement_s if _is_plain(found) else found.contradiction_s) > AGREE_S:
        wrong.append(f"client and fleet differ for {found.disagreement_s:.0f} s")
    if found.false_alarms_s:
        wrong.append(f"in breach for {found.false_alarms_s} s without cause")
    if not found.is_headline:
        wrong.append("the fleet's headline hides it")
    if found.runs[0] is not found.runs[1]:
        wrong.append(f"over the whole run: {found.runs}")
    if abs(found.attained[0] - found.attained[1]) > 0.01:
        wrong.append(f"attained differs: {found.attained}")
    if found.incident.kind is IncidentKind.UNNAMED and found.total in (Compliance.KEPT, Compliance.NONE):
        wrong.append(f"failures under no lane count nowhere: {found.total}")
    return wrong


def _unnamed(found: Trial) -> list[str]:
    if _is_plain(found):
        by_s = NAMED_S
    elif found.certain_s is not None:
        by_s = max(NAMED_S, math.sqrt(LONG_S * found.certain_s) + 1.0)  # docs/verdicts.md has the sums
    else:
        return []
    wrong = []
    if found.named_s is None or found.named_s > by_s:
        wrong.append(
            f"named after {found.named_s} s, shown after {found.shown_s} s, beyond doubt after {found.certain_s} s"
        )
    if found.client_named_s is None or found.client_named_s > by_s + AGREE_S:
        wrong.append(f"the client named it after {found.client_named_s} s")
    return wrong


def _is_plain(found: Trial) -> bool:
    """Whether an incident's own samples show it soon enough for it to be named in time."""
    return found.shown_s is not None and found.shown_s < NAMED_S - 1.0


@pytest.mark.parametrize("seed", range(INCIDENTS))
def test_client_and_fleet_agree_on_an_incident(seed: int) -> None:
    assert complaints(trial(Incident.of(seed))) == []
