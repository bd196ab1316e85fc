"""The published budget of 400 ms by component: what passes before the gateway is in no limit, plan or verdict of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.core.plan.prefill_only import TTFT_FLOOR_S
from fleetctl.core.slo.breach import Limits
from fleetctl.errors import ConfigError
from fleetctl.model.plan import Sizing
from fleetctl.model.slo import Metric
from fleetctl.operations.traffic import fleet_spec
from tests.plan.profiles import planned

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile

PUBLISHED = "ttft_budget: {network: 20ms, tokenization: 10ms, gateway: 15ms, safety_filter: 25ms}"
TEXT = """\
apiVersion: fleetctl/v1
name: budgeted
model: {{id: meta-llama/Llama-3.1-8B-Instruct}}
engine: emulator
provider: local
workload: {{peak_rps: 10, prompt_tokens: {{p50: 300, p99: 600}}, output_tokens: {{p50: 150, p99: 600}}}}
lanes:
  all: {{slo: {{ttft: {{p99: {limit}}}, itl: {{p99: 60ms}}}}, max_wait: 1s, {budget}, replicas: {{min: 1, max: 100}}, spot: none}}
capacity: {{gpus: [H100], max_nodes: 200}}
{more}
"""


def profile(*, budget: str = PUBLISHED, limit: str = "400ms", more: str = "") -> Profile:
    text = TEXT.format(limit=limit, budget=budget, more=more).replace("1s, , ", "1s, ")
    return parse_profile(text, source="test.yaml")


def test_what_passes_before_the_gateway_is_off_what_gateway_and_load_hold() -> None:
    lane = profile().lane("all")
    # Of the network a millisecond is the gateway's way to the engine, which it measures.
    held_s = 0.400 - 0.019 - 0.025
    assert Limits.of(lane.slo).ttft_s == pytest.approx(held_s)
    assert Limits.of(fleet_spec(profile()).slos["all"]).ttft_s == pytest.approx(held_s)
    assert lane.slo.limit_s(Metric.ITL) == 0.060


def test_the_budget_is_shown_by_component_and_sums_to_the_promise() -> None:
    lane = planned(profile()).lanes[0]
    parts = {item.component: item.seconds for item in lane.budget}
    assert parts | {"network in": 0.020, "safety filter": 0.025, "gateway": 0.015, "tokenization": 0.010} == parts
    assert sum(parts.values()) == pytest.approx(0.400)
    assert {"queue", "prefill", "headroom"} <= parts.keys()
    assert parts["headroom"] >= -1e-9


def test_queue_and_engine_have_what_is_left() -> None:
    tight, loose = (planned(profile(budget=budget)).lanes[0] for budget in ("ttft_budget: {safety_filter: 250ms}", ""))
    assert tight.replicas >= loose.replicas
    own_s = sum(item.seconds for item in tight.budget if item.component in ("queue", "prefill", "running step"))
    assert own_s <= 0.400 - 0.250 - TTFT_FLOOR_S
    filtered = planned(profile(budget="ttft_budget: {safety_filter: 100ms}", limit="500ms")).lanes[0]
    assert filtered.replicas == loose.replicas, "400 ms are left of 500"


def test_what_is_forecast_has_gateway_and_tokenization_as_long_as_is_said() -> None:
    longer = planned(profile(budget="ttft_budget: {gateway: 31ms, tokenization: 35ms}", limit="450ms")).lanes[0]
    assumed = planned(profile(budget="")).lanes[0]
    assert longer.replicas == assumed.replicas
    assert longer.forecast.ttft_p99_s == pytest.approx(assumed.forecast.ttft_p99_s + 0.050)


def test_the_published_400_ms_come_out_by_the_rule() -> None:
    plan = planned(profile(), sizing=Sizing.PREFILL_ONLY, service_time_s=0.280)
    parts = {item.component: round(1000 * item.seconds) for item in plan.lanes[0].budget}
    named = {name: parts[name] for name in ("network in", "prefill", "tokenization", "gateway", "safety filter")}
    assert named == {"network in": 20, "prefill": 280, "tokenization": 10, "gateway": 15, "safety filter": 25}
    assert parts["queue"] + parts["headroom"] == 50, "which is what the published budget gives the queue"


@pytest.mark.parametrize(
    ("budget", "limit", "more", "message"),
    [
        ("ttft_budget: {safety_filter: 400ms}", "400ms", "", "takes 400ms and leaves nothing of slo.ttft P99 (400ms)"),
        ("ttft_budget: {Filter: 40ms}", "400ms", "", "Filter"),
        ("ttft_budget: {filter: 40}", "400ms", "", "40 is not a duration"),
        (PUBLISHED, "400ms", "tiers: {gold: {weight: 2, slo: {ttft: {p99: 300ms}}}, rest: {}}", "ttft_budget takes a part"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(budget: str, limit: str, more: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        profile(budget=budget, limit=limit, more=more)
    assert message in str(caught.value)
