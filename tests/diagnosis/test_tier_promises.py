"""Where a lane's misses are those of a tier with a promise of its own, that promise is named, with its limit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.conditions import lane_condition
from fleetctl.core.diagnosis.findings import Cause
from fleetctl.core.slo.judge import judge_live
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.ladder import LadderStep
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.status import LaneStatus
from fleetctl.model.tiers import TierSnapshot, TierSpec, TierWindow, own_metrics, slo_of
from tests.diagnosis.lanes import NOW, desired, diagnosed, ended, named

if TYPE_CHECKING:
    from fleetctl.model.request_trace import RequestTrace

LANE = desired().profile.lane("long").slo


def promised(limit_s: float, metric: Metric = Metric.TTFT) -> LaneSlo:
    return LaneSlo(targets=(LatencyTarget(metric=metric, percentile=0.99, limit_s=limit_s),))


GOLD, TIN = TierSpec(name="gold", slo=promised(0.015)), TierSpec(name="tin")


def late(at_s: float, tier: str, **how: Any) -> RequestTrace:
    return ended(at_s, verdict="ttft", tier=tier, ttft_s=0.05, ttft_limit_s=0.015, predicted_s=0.04, **how)


def test_the_tiers_key_is_named_and_not_the_lanes() -> None:
    found = diagnosed(
        [*(late(100 - n, "gold") for n in range(30)), *(ended(60 - n, tier="tin") for n in range(30))],
        tiers=(GOLD, TIN),
    )
    cause = named(found, Cause.PROMPTS_TOO_LONG)
    assert cause is not None
    assert cause.remedy.startswith("a longer tiers.gold.slo.ttft, ")
    [text] = [each for each in cause.evidence if "gold" in each]
    assert (
        text
        == "30 of 30 missed requests are tier gold's, promised P99 15ms (tiers.gold.slo.ttft); the lane promises P99 2s"
    )


@pytest.mark.parametrize("tiers", [(), (TIN,), (TierSpec(name="gold", slo=promised(0.03, Metric.ITL)),)])
def test_the_lanes_is_where_the_tier_has_none_of_its_own(tiers: tuple[TierSpec, ...]) -> None:
    found = diagnosed([late(100 - n, "gold") for n in range(30)], tiers=tiers)
    cause = named(found, Cause.PROMPTS_TOO_LONG)
    assert cause is not None
    assert cause.remedy.startswith("a longer lanes.long.slo.ttft, ")
    assert not any("tiers." in each for each in cause.evidence)


def test_the_lanes_is_where_most_misses_are_of_others() -> None:
    few = [late(100 - n, "gold") for n in range(5)]
    others = [ended(90 - n, verdict="ttft", tier="tin", ttft_s=3.0, predicted_s=2.5) for n in range(25)]
    cause = named(diagnosed([*few, *others], tiers=(GOLD, TIN)), Cause.PROMPTS_TOO_LONG)
    assert cause is not None
    assert cause.remedy.startswith("a longer lanes.long.slo.ttft, ")


def status(*tiers: tuple[TierSpec, dict[str, int]]) -> LaneStatus:
    """Return a lane of which 34 of the last 100 requests were late, with so many of each tier by kind."""
    traffic = LaneSnapshot(
        name="long", in_flight=0, queued=0, oldest_wait_s=0.0,
        windows=tuple(LaneWindow(seconds=seconds, good=66, breached={"ttft": 34}) for seconds in (10.0, 60.0)),
        tiers=tuple(
            TierSnapshot(
                name=tier.name, slo=slo_of(LANE, tier), own_metrics=own_metrics(LANE, tier),
                windows=tuple(TierWindow(seconds=seconds, breached=kinds) for seconds in (10.0, 60.0)),
            )
            for tier, kinds in tiers
        ),
    )  # fmt: skip
    return LaneStatus(
        name="long", slo=LANE, wanted=2, ready=2, spot=0, on_demand=2, live=2, step=LadderStep.NORMAL, traffic=traffic,
        verdict=judge_live(traffic, objective=0.995, before=None, now=NOW),
    )  # fmt: skip


def test_a_breach_says_whose_promise_it_is() -> None:
    message = lane_condition(status((GOLD, {"ttft": 34}), (TIN, {}))).message
    assert message.startswith("for 0s: 66 of 100 requests good (34 ttft), 99.5% promised")
    assert message.endswith("; 34 of the 34 ttft are tier gold's, promised P99 15ms (tiers.gold.slo.ttft)")


def test_a_breach_of_the_lanes_own_promise_names_no_tier() -> None:
    assert "tier" not in lane_condition(status((TIN, {"ttft": 34}))).message
    assert "tier" not in lane_condition(status((GOLD, {"ttft": 4}), (TIN, {"ttft": 30}))).message
    assert "tier" not in lane_condition(replace(status(), traffic=None)).message
