"""What a workflow's promise asks of each call, and of the plan."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from fleetctl.config.profile import parse_profile
from fleetctl.core.workflows.promise import call_limit_s, call_percentile, elapsed_s
from fleetctl.errors import BudgetExceededError, InfeasiblePlanError
from fleetctl.model.plan import Constraint
from fleetctl.model.workflows import WorkflowKind
from tests.config.test_every_key import SAMPLE
from tests.plan.profiles import planned

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan

NORMAL = NormalDist()


def lognormal_s(percentile: float) -> float:
    """A call's time, with the spread of usual answers: P99 four times the median."""
    return float(2.0 * 4.0 ** (NORMAL.inv_cdf(percentile) / NORMAL.inv_cdf(0.99)))


def kind(steps: int = 1, fan_out: int = 1) -> WorkflowKind:
    return WorkflowKind(name="k", steps=steps, fan_out=fan_out)


def test_five_at_once_at_p99_take_p99_8_each() -> None:
    assert call_percentile(kind(fan_out=5), 0.99) == pytest.approx(0.998, abs=1e-5)
    assert call_percentile(kind(), 0.99) == 0.99
    assert call_percentile(kind(steps=7), 0.99) == 0.99


@given(st.integers(1, 100), st.floats(0.5, 0.9999))
def test_a_call_of_more_has_to_keep_more(fan_out: int, percentile: float) -> None:
    own = call_percentile(kind(fan_out=fan_out), percentile)
    assert percentile <= own + 1e-12
    assert own**fan_out == pytest.approx(percentile)
    assert own <= call_percentile(kind(fan_out=fan_out + 1), percentile)


@given(st.integers(1, 30), st.integers(1, 8), st.sampled_from((0.9, 0.95, 0.99, 0.999)))
def test_a_calls_limit_is_what_makes_the_workflow_take_just_its_own(
    steps: int, fan_out: int, percentile: float
) -> None:
    made = kind(steps, fan_out)
    limit_s = elapsed_s(made, lognormal_s, percentile)
    middle_s = lognormal_s(call_percentile(made, 0.5))
    found_s = call_limit_s(made, limit_s, percentile, middle_s)
    assert found_s == pytest.approx(lognormal_s(call_percentile(made, percentile)))
    assert call_limit_s(made, limit_s, 0.5, middle_s) == limit_s / steps


@pytest.mark.parametrize(("steps", "fan_out"), [(1, 1), (7, 1), (1, 5), (3, 5), (20, 2)])
def test_independent_calls_take_no_longer_than_is_reckoned_with_and_not_much_less(steps: int, fan_out: int) -> None:
    rng = random.Random(8)

    def call() -> float:
        return lognormal_s(min(max(rng.random(), 1e-9), 1 - 1e-9))

    runs = sorted(sum(max(call() for _ in range(fan_out)) for _ in range(steps)) for _ in range(6000))
    reckoned_s = elapsed_s(kind(steps, fan_out), lognormal_s, 0.99)
    measured_s = runs[int(0.99 * len(runs))]
    assert measured_s <= reckoned_s * 1.08, (measured_s, reckoned_s)
    assert reckoned_s <= 1.35 * measured_s, (measured_s, reckoned_s)


# The plan.


def tree_with(workflows: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = deepcopy(SAMPLE)
    del tree["lanes"]["batch"]  # a plan of two lanes takes half as long
    tree["workload"].pop("batch_share")
    return tree | ({"workflows": workflows} if workflows else {})


@cache
def plan_of(workflows: str) -> Plan:
    tree = tree_with(json.loads(workflows) if workflows else {})
    profile = parse_profile(json.dumps(tree), source="a profile", base_dir=Path())
    return planned(profile, trace_rows=None)


def with_kinds(**kinds: Any) -> Plan:
    return plan_of(json.dumps({"kinds": kinds}))


def test_a_promise_that_is_kept_anyway_costs_nothing() -> None:
    plain, loose = plan_of(""), with_kinds(agent={"steps": 7, "slo": {"p99": "1h"}, "lane": "short"})
    assert loose.cost_usd_per_hour == plain.cost_usd_per_hour
    assert [lane.launch for lane in loose.lanes] == [lane.launch for lane in plain.lanes]
    (found,) = loose.lane("short").workflows
    assert (found.replicas_without, found.call_percentile) == (plain.lane("short").replicas, 0.99)
    assert found.cost_usd_per_hour_without == plain.lane("short").cost_usd_per_hour
    assert plain.lane("short").workflows == loose.lane("long").workflows == ()


def test_a_tighter_promise_never_costs_less_and_the_forecast_keeps_it() -> None:
    costs = [plan_of("").lane("short").cost_usd_per_hour]
    for limit_s in (14, 11):
        plan = with_kinds(agent={"steps": 7, "slo": {"p99": f"{limit_s}s"}, "lane": "short"})
        (found,) = plan.lane("short").workflows
        assert found.elapsed_s <= limit_s
        costs.append(plan.lane("short").cost_usd_per_hour)
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]


def test_the_workflow_that_binds_is_named_by_its_key_with_the_percentile_of_its_calls() -> None:
    lane = with_kinds(research={"fan_out": 5, "slo": {"p99": "4.2s"}, "lane": "short"}).lane("short")
    assert (lane.constraint, lane.bound_by) == (Constraint.WORKFLOW, "workflows.kinds.research.slo.p99")
    (reason,) = (reason for reason in lane.reasons if reason.startswith("workflow research"))
    assert "5 calls at once, so each call E2E P99.8 <= 4.2s" in reason
    assert "without workflows" in reason


def test_a_promise_no_replica_keeps_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        InfeasiblePlanError, match=r"no number of replicas keeps workflow agent's elapsed P99 <= 1s"
    ) as found:
        with_kinds(agent={"steps": 7, "slo": {"p99": "1s"}, "lane": "short"})
    assert found.value.key == ("workflows", "kinds", "agent", "slo", "p99")
    assert "promise " in found.value.hint


def capped(cap: str, **kinds: dict[str, Any]) -> str:
    """Return why there is no plan within a cap, and what to do."""
    tree = tree_with({"kinds": kinds})
    tree["capacity"]["max_cost_per_hour"] = cap
    with pytest.raises(BudgetExceededError) as found:
        planned(parse_profile(json.dumps(tree), source="a profile", base_dir=Path()), trace_rows=None)
    return f"{found.value.message}; {found.value.hint}"


def test_a_cost_over_the_cap_names_the_workflow_promise_that_asks_for_it_and_the_cost_without() -> None:
    loose = {"steps": 2, "slo": {"p99": "1h"}, "lane": "short"}
    strict = {"steps": 7, "slo": {"p50": "10s", "p99": "11s"}, "lane": "short"}
    plain = plan_of("").cost_usd_per_hour
    key = "workflows.kinds.agent.slo.p99 (11s)"
    for kinds in ({"agent": strict}, {"other": loose, "agent": strict}):
        text = capped(f"${plain:.2f}", **kinds)
        assert f"; without {key} it costs ${plain:.2f}; " in text
        assert text.endswith(f"relax their promises, {key} first")


def test_promises_that_ask_for_the_same_are_named_together() -> None:
    strict = {"steps": 7, "slo": {"p99": "11s"}, "lane": "short"}
    text = capped("$0.01", agent=strict, twin=strict)
    assert "without workflows.kinds.agent.slo.p99 (11s) and workflows.kinds.twin.slo.p99 (11s) it costs" in text


def test_a_cost_over_the_cap_names_no_workflow_that_costs_nothing() -> None:
    text = capped("$0.01", agent={"steps": 7, "slo": {"p99": "1h"}, "lane": "short"})
    assert "workflows" not in text


def test_nothing_is_planned_for_a_kind_without_a_lane_and_a_caution_says_so() -> None:
    plan = with_kinds(agent={"slo": {"p99": "1s"}})
    assert plan.cost_usd_per_hour == plan_of("").cost_usd_per_hour
    assert any("workflow agent names no lane" in caution for caution in plan.cautions)
