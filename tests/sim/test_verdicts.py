"""Client and fleet say the same of an incident: a breach is named within 10 s, and gone within a minute of its end.

FLEETCTL_INCIDENTS sets how many seeds are run; the campaign is 200 (tests/bench/verdict_campaign.py prints its table).
"""

from __future__ import annotations

import os

import pytest

from tests.sim.incidents import Trial, trial

INCIDENTS = int(os.environ.get("FLEETCTL_INCIDENTS", "12"))
NAMED_S, GONE_S, AGREE_S = 10.0, 60.0, 3.0


def complaints(found: Trial) -> list[str]:
    """Return what is wrong with a trial."""
    wrong = []
    named_by_s = max(NAMED_S, (found.second_miss_s or 0.0) + 1.0)  # a breach needs two requests to show it
    if found.named_s is None or found.named_s > named_by_s:
        wrong.append(f"named after {found.named_s} s, two had missed after {found.second_miss_s} s")
    if found.client_named_s is None or found.client_named_s > named_by_s + AGREE_S:
        wrong.append(f"the client named it after {found.client_named_s} s")
    if found.gone_s > GONE_S:
        wrong.append(f"gone {found.gone_s:.0f} s after the end")
    if found.disagreement_s > AGREE_S:
        wrong.append(f"client and fleet differ for {found.disagreement_s:.0f} s")
    if found.false_alarms_s:
        wrong.append(f"in breach for {found.false_alarms_s} s before it began")
    if not found.is_headline:
        wrong.append("the fleet's headline hides it")
    if found.runs[0] is not found.runs[1]:
        wrong.append(f"over the whole run: {found.runs}")
    if abs(found.attained[0] - found.attained[1]) > 0.01:
        wrong.append(f"attained differs: {found.attained}")
    return wrong


@pytest.mark.parametrize("seed", range(INCIDENTS))
def test_client_and_fleet_agree_on_an_incident(seed: int) -> None:
    assert complaints(trial(seed)) == []
