"""Plans in files, and what changes between two of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from fleetctl import codec
from fleetctl.config.profile import parse_profile, profile_hash
from fleetctl.core.plan import RuleInputs
from fleetctl.core.plan.changes import PlanChange, PlanField, ReplicaSplit, diff_plans
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import Precision
from fleetctl.model.plan import Sizing
from fleetctl.operations.plan_files import load_plan, price_now, save_plan
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import find_profile
from tests.plan.profiles import planned, profile_with
from tests.sites import plugins_site

if TYPE_CHECKING:
    from pathlib import Path

PLAN = planned(profile_with(rps=20, spot="burst"))


def test_a_saved_plan_comes_back_the_same(tmp_path: Path) -> None:
    save_plan(PLAN, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == PLAN
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


@given(cut=st.floats(0, 0.999))
def test_a_truncated_plan_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: float) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    save_plan(PLAN, path)
    raw = path.read_bytes().rstrip()
    path.write_bytes(raw[: int(len(raw) * cut)])
    with pytest.raises(ConfigError, match="damaged"):
        load_plan(path)


def test_another_formats_plan_is_refused_by_its_version(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(PLAN, path)
    path.write_text(json.dumps({"version": 3, "plan": {"of": "the future"}}))
    with pytest.raises(ConfigError, match="format 3"):
        load_plan(path)


@pytest.mark.parametrize(
    ("key", "value"), [("cost_usd_per_hour", 0.01), ("profile_hash", "another"), ("cautions", ["all is well"])]
)
def test_a_plan_edited_by_hand_is_refused(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "plan.json"
    save_plan(PLAN, path)
    file = json.loads(path.read_text())
    file["plan"][key] = value
    path.write_text(json.dumps(file))
    with pytest.raises(ConfigError, match="was changed after it was saved") as caught:
        load_plan(path)
    assert "plan again" in caught.value.hint


def test_a_plan_laid_out_otherwise_is_the_same_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(PLAN, path)
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert load_plan(path) == PLAN


async def test_a_saved_plan_costs_what_its_provider_asks_now_whatever_the_file_says() -> None:
    profile = find_profile("chat")
    plan = await plan_profile(plugins_site(), profile)
    cheap = replace(plan.lanes[0], cost_usd_per_hour=0.01)
    edited = replace(plan, lanes=(cheap, *plan.lanes[1:]), cost_usd_per_hour=0.01, head_usd_per_hour=0.08)
    priced = await price_now(plugins_site(), profile, edited)
    assert priced.cost_usd_per_hour == pytest.approx(plan.cost_usd_per_hour + 0.08)
    assert [lane.cost_usd_per_hour for lane in priced.lanes] == pytest.approx(
        [lane.cost_usd_per_hour for lane in plan.lanes]
    )


async def test_a_plan_on_what_is_no_longer_sold_is_refused() -> None:
    profile = find_profile("chat")
    plan = await plan_profile(plugins_site(), profile)
    lane = plan.lanes[0]
    gone = replace(plan, lanes=(replace(lane, offering=replace(lane.offering, instance_type="retired.1x")),))
    with pytest.raises(ConfigError, match="no longer sold"):
        await price_now(plugins_site(), profile, gone)


def test_a_missing_plan_and_an_unwritable_place_are_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_plan(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_plan(PLAN, tmp_path / "no such directory" / "plan.json")


def test_a_plan_does_not_differ_from_itself() -> None:
    assert diff_plans(PLAN, PLAN) == ()
    assert diff_plans(PLAN, codec.decode(type(PLAN), codec.encode(PLAN))) == ()


def test_a_difference_names_lane_field_and_both_values() -> None:
    lane = PLAN.lanes[0]
    grown = replace(PLAN, lanes=(replace(lane, replicas=lane.replicas + 1, spot=lane.spot + 1),))
    assert diff_plans(PLAN, grown) == (
        PlanChange(
            lane="all",
            field=PlanField.REPLICAS,
            old=ReplicaSplit(replicas=lane.replicas, on_demand=lane.on_demand, spot=lane.spot),
            new=ReplicaSplit(replicas=lane.replicas + 1, on_demand=lane.on_demand, spot=lane.spot + 1),
        ),
    )


def test_new_and_dropped_lanes_are_changes() -> None:
    renamed = replace(PLAN, lanes=(replace(PLAN.lanes[0], lane="other"),))
    changes = diff_plans(PLAN, renamed)
    assert {c.old for c in changes if c.lane == "other"} == {None}
    assert {c.new for c in changes if c.lane == "all"} == {None}
    assert {c.lane for c in diff_plans(None, PLAN)} == {"all", ""}


async def test_a_plan_carries_its_profiles_hash_and_follows_its_trace(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "trace.csv.gz", "wt") as trace:
        trace.write("arrival_s,prompt_tokens,output_tokens\n")
        trace.writelines(f"{i * 0.1:.1f},{200 + i % 7},{40 + i % 5}\n" for i in range(1800))
    text = """
apiVersion: fleetctl/v1
name: traced
model: {id: meta-llama/Llama-3.1-8B-Instruct}
engine: emulator
provider: local
workload: {peak_rps: 4, trace: trace.csv.gz}
lanes:
  all: {slo: {ttft: {p99: 500ms}}, max_wait: 1s}
capacity: {gpus: [L40S]}
"""
    profile = parse_profile(text, source="traced", base_dir=tmp_path)
    plan = await plan_profile(plugins_site(), profile)
    assert plan.profile_hash == profile_hash(profile)
    assert plan.lanes[0].prompt_tokens_mean == pytest.approx(203, abs=1)
    assert plan.lanes[0].rps == pytest.approx(4)
    assert any("1,800 trace requests" in reason for reason in plan.lanes[0].reasons)


async def test_the_rules_own_inputs_are_refused_by_full_sizing() -> None:
    with pytest.raises(ConfigError, match="prefill-only"):
        await plan_profile(
            plugins_site(), replace(profile_with(), provider="local"), rule=RuleInputs(service_time_s=0.04)
        )
    with pytest.raises(ConfigError, match="more than zero"):
        await plan_profile(
            plugins_site(), profile_with(), sizing=Sizing.PREFILL_ONLY, rule=RuleInputs(price_usd_per_hour=0.0)
        )


async def test_prefill_only_plans_by_the_same_call() -> None:
    plan = await plan_profile(
        plugins_site(),
        profile_with(rps=100, slo="ttft: {p99: 400ms}"),
        sizing=Sizing.PREFILL_ONLY,
        rule=RuleInputs(service_time_s=0.040),
    )
    assert plan.lanes[0].replicas == 6  # 100 / (0.70 / 0.040) = 5.7


@pytest.mark.parametrize(
    ("engine", "model", "message"),
    [
        ("sglang", {"kv_cache": Precision.INT8}, "sglang has no int8 KV cache"),
        ("emulator", {"kv_cache": Precision.INT4}, "emulator has no int4 KV cache"),
        ("vllm", {"quantization": Precision.INT4}, "vllm cannot quantize"),
    ],
)
async def test_a_precision_that_a_lanes_engine_lacks_is_refused_before_anything_starts(
    engine: str, model: dict[str, Any], message: str
) -> None:
    profile = profile_with()
    lanes = tuple(replace(lane, engine=engine) for lane in profile.lanes)
    profile = replace(profile, provider="local", lanes=lanes, model=replace(profile.model, **model))
    with pytest.raises(ConfigError, match=message):
        await plan_profile(plugins_site(), profile)
