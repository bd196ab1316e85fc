"""Full sizing: what must hold for any lane, and the cross-checks of the physics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import Phase, assume, given, settings, strategies as st

from fleetctl import codec
from fleetctl.catalogue.known import resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.core.perf.kv import kv_capacity_tokens
from fleetctl.core.perf.step import StepBatch, chunk_context_tokens, step_model
from fleetctl.core.plan import make_plan
from fleetctl.core.plan.layouts import is_divisible
from fleetctl.core.plan.workload import lane_demands
from fleetctl.errors import BudgetExceededError, InfeasiblePlanError
from fleetctl.model.catalogue import Market, Precision
from fleetctl.model.plan import Constraint, LanePlan, Plan
from fleetctl.model.profile import LaunchOverrides, OnDemandPolicy, Profile, ReplicaBounds
from tests.plan.profiles import CATALOGUE, OFFERINGS, only_lane, planned, profile_with, with_launch

# A plan takes a tenth of a second; shrinking a failure would take minutes and say little more.
sampled = settings(deadline=None, max_examples=8, phases=(Phase.explicit, Phase.reuse, Phase.generate))
lengths = st.tuples(st.integers(50, 2000), st.floats(1.0, 10.0)).map(lambda t: (t[0], t[0] * t[1]))


SINGLE = tuple(o for o in OFFERINGS if o.gpu_count == 1)  # larger nodes are fewer: not comparable by count


def replicas(profile: Profile) -> float:
    """Return the single-GPU replicas a lane needs; infinity where no number is enough."""
    try:
        return planned(profile, offerings=SINGLE).lanes[0].replicas
    except InfeasiblePlanError:
        return math.inf


@sampled
@given(rps=st.floats(0.5, 200), more=st.floats(1.0, 4.0), prompt=lengths, output=lengths)
def test_more_demand_never_needs_fewer_replicas(
    rps: float, more: float, prompt: tuple[float, float], output: tuple[float, float]
) -> None:
    less, greater = (profile_with(rps=r, prompt=prompt, output=output) for r in (rps, rps * more))
    assert replicas(less) <= replicas(greater)


@sampled
@given(ttft_ms=st.integers(60, 3000), itl_ms=st.integers(25, 200), tighter=st.floats(0.3, 1.0), prompt=lengths)
def test_a_tighter_promise_never_needs_fewer_replicas(
    ttft_ms: int, itl_ms: int, tighter: float, prompt: tuple[float, float]
) -> None:
    def promising(ttft: float, itl: float) -> Profile:
        return profile_with(slo=f"ttft: {{p99: {ttft:.3f}ms}}, itl: {{p99: {itl:.3f}ms}}", prompt=prompt, rps=30)

    loose = replicas(promising(ttft_ms, itl_ms))
    assert loose <= replicas(promising(ttft_ms * tighter, itl_ms))
    assert loose <= replicas(promising(ttft_ms, itl_ms * tighter))


@sampled
@given(prompt=lengths, longer=st.floats(1.0, 3.0), output=lengths)
def test_longer_prompts_never_need_fewer_replicas(
    prompt: tuple[float, float], longer: float, output: tuple[float, float]
) -> None:
    stretched = (prompt[0] * longer, prompt[1] * longer)
    assert replicas(profile_with(prompt=prompt, output=output)) <= replicas(
        profile_with(prompt=stretched, output=output)
    )


def test_among_knees_within_5_percent_of_the_highest_the_lowest_ttft_wins() -> None:
    # Chunks of 256, 512 and 1024 saturate at 1.409, 1.367 and 1.317 rps; the TTFT P99 of 512 is half that of 256.
    profile = profile_with(
        model="Qwen/Qwen3-32B", prompt=(4000, 4001), output=(1000, 1001), gpus="H100",
        slo="ttft: {p99: 3s}, itl: {p99: 100ms}",
    )  # fmt: skip
    pairs = tuple(replace(o, gpu_count=2) for o in SINGLE)
    lane = planned(with_launch(profile, LaunchOverrides(tensor_parallel=2)), offerings=pairs).lanes[0]
    assert lane.launch.max_num_batched_tokens == 512


@sampled
@given(prompt=lengths, output=lengths, rps=st.floats(0.5, 100), gpu=st.sampled_from(["L40S", "H100", "A10G", "H200"]))
def test_a_full_batch_leaves_a_fifth_of_the_kv_cache_free(
    prompt: tuple[float, float], output: tuple[float, float], rps: float, gpu: str
) -> None:
    # Half a minute: the longest prompts take an A10G more than fifteen seconds.
    profile = profile_with(prompt=prompt, output=output, rps=rps, gpus=gpu, precision="fp8", slo="ttft: {p99: 30s}")
    try:
        lane = planned(profile, offerings=SINGLE).lanes[0]
    except InfeasiblePlanError as exc:
        assume("replicas.max is 1000" not in str(exc))  # the longest answers, at the highest rates, on the smallest GPU
        raise
    launch, card = lane.launch, CATALOGUE.models[profile.model.id]
    tokens = kv_capacity_tokens(
        card, CATALOGUE.gpus[gpu], tensor_parallel=lane.tensor_parallel, precision=Precision.FP8,
        kv_precision=Precision.BF16, gpu_memory_utilization=launch.gpu_memory_utilization,
        max_num_batched_tokens=launch.max_num_batched_tokens,
    )  # fmt: skip
    # A sequence holds its prompt and, over its life, half its answer on average (more: long answers stay longer).
    resident = lane.prompt_tokens_mean + lane_demands(profile)[lane.lane].output.mean / 2
    assert launch.max_num_seqs * resident <= 0.8 * tokens
    assert launch.max_model_len == min(card.context_tokens_max, launch.max_model_len) <= tokens
    # What one request may take is what there is, whatever is expected; a fifth of the cache is not promised to it.
    assert launch.max_model_len >= min(card.context_tokens_max, 0.8 * tokens - 1024)
    assert lane.forecast.concurrency <= launch.max_num_seqs <= launch.max_num_batched_tokens


@sampled
@given(prompt=lengths, output=lengths, rps=st.floats(0.5, 100))
def test_every_promise_is_kept_and_the_budget_sums_to_it(
    prompt: tuple[float, float], output: tuple[float, float], rps: float
) -> None:
    slo = "ttft: {p50: 400ms, p99: 2s}, itl: {p99: 70ms}, e2e: {p99: 600s}"
    lane = planned(profile_with(prompt=prompt, output=output, rps=rps, slo=slo, gpus="H100"), offerings=SINGLE).lanes[0]
    forecast = lane.forecast
    assert forecast.ttft_p50_s <= 0.4
    assert forecast.ttft_p99_low_s < forecast.ttft_p99_s <= 2.0 < forecast.ttft_p99_high_s + 2.0
    assert forecast.itl_p99_s <= 0.07
    assert forecast.e2e_p99_s <= 600
    assert forecast.utilisation < 1
    assert lane.rps < forecast.knee_rps
    assert math.fsum(item.seconds for item in lane.budget) == pytest.approx(2.0)
    assert all(item.seconds >= -1e-9 for item in lane.budget)


def test_a_step_with_the_end_of_a_long_prompt_in_it_keeps_the_itl() -> None:
    profile = profile_with(
        prompt=(11_587, 66_458), output=(69, 769), rps=4, slo="ttft: {p99: 30s}, itl: {p99: 100ms}", gpus="H100"
    )
    plan = planned(profile, offerings=SINGLE)
    lane = plan.lanes[0]
    card, gpu = plan.model_card, lane.gpu_spec
    assert card is not None
    assert gpu is not None
    model = step_model(
        card, gpu, tensor_parallel=1, precision=lane.launch.quantization, kv_precision=card.native_precision
    )
    chunk = lane.launch.max_num_batched_tokens - 1
    end = StepBatch(chunk, chunk_context_tokens(66_458 - chunk, chunk), 1, 16_000)
    assert model.step_s(end) <= 0.1
    assert lane.forecast.itl_p99_s >= model.decode_step_s(lane.forecast.concurrency, 12_000)


def test_the_same_profile_yields_the_same_plan() -> None:
    first, second = (codec.encode(planned(profile_with(gpus="L40S, H100, A10G", precision="fp8"))) for _ in range(2))
    assert first == second
    assert codec.decode(Plan, first) == planned(profile_with(gpus="L40S, H100, A10G", precision="fp8"))


# Published cross-check: one H100 with Llama-3.1-70B FP8, 512 + 256 tokens, serves 2-3 rps at TTFT P99 300 ms.
def test_one_h100_serves_two_to_three_rps_of_llama_70b_not_seventeen() -> None:
    profile = with_launch(
        profile_with(
            model="meta-llama/Llama-3.1-70B-Instruct", precision="fp8", kv="fp8", rps=1000, prompt=(512, 512),
            output=(256, 256), slo="ttft: {p99: 300ms}", gpus="H100", most=1500,
        ),
        LaunchOverrides(gpu_memory_utilization=0.95, tensor_parallel=1),
    )  # fmt: skip
    lane = planned(profile, offerings=SINGLE).lanes[0]
    assert 2.0 <= lane.forecast.knee_rps / lane.replicas <= 5.0
    assert 1.5 <= lane.rps / lane.replicas <= 4.0
    assert lane.constraint is Constraint.KV_MEMORY


def test_the_cheapest_instance_that_keeps_the_promise_is_chosen() -> None:
    lane = only_lane(profile_with(gpus="L40S, H100, A10G", rps=1, slo="ttft: {p99: 3s}, itl: {p99: 200ms}"))
    assert (lane.gpu, lane.tensor_parallel) == ("A10G", 1)
    strict = only_lane(profile_with(gpus="L40S, H100, A10G", rps=1, slo="ttft: {p99: 150ms}, itl: {p99: 15ms}"))
    assert strict.gpu == "H100"


def test_a_model_too_large_for_one_gpu_is_split_over_the_node() -> None:
    lane = only_lane(
        profile_with(
            model="meta-llama/Llama-3.1-70B-Instruct", gpus="H100", rps=2, slo="ttft: {p99: 2s}, itl: {p99: 80ms}"
        )
    )
    assert lane.tensor_parallel == 4
    assert lane.offering.gpu_count == 4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"output": (800, 2000), "slo": "ttft: {p99: 10s}", "gpus": "A10G", "precision": "fp8"}, Constraint.KV_MEMORY),
        (
            {"prompt": (200, 400), "output": (600, 1500), "slo": "ttft: {p99: 10s}, itl: {p99: 38ms}"},
            Constraint.ITL,
        ),
        ({"prompt": (4000, 9000), "output": (2, 4), "slo": "ttft: {p99: 10s}"}, Constraint.PREFILL),
        ({"rps": 0.2}, Constraint.MINIMUM),
    ],
)
def test_the_binding_constraint_is_named(changes: dict[str, object], expected: Constraint) -> None:
    profile = profile_with(**({"rps": 60} | changes))  # type: ignore[arg-type]  # a table of keyword arguments
    assert only_lane(profile).constraint is expected


def test_spot_gets_a_spare_and_on_demand_carries_the_average() -> None:
    on_demand = only_lane(profile_with(rps=60, spot="none"))
    burst = only_lane(profile_with(rps=60, spot="burst"))
    assert on_demand.spot == 0
    assert burst.spot > 0
    assert burst.replicas == on_demand.replicas + 1
    average_load = 0.6 * burst.rps / (burst.on_demand * burst.forecast.knee_rps / burst.replicas)
    assert average_load <= 0.7 + 1e-9
    assert burst.cost_usd_per_hour < on_demand.cost_usd_per_hour
    assert only_lane(profile_with(rps=60, spot="all")).on_demand == 0


def test_the_on_demand_policy_sets_what_does_not_sit_on_spot() -> None:
    burst = profile_with(rps=60, spot="burst")
    by_policy = {
        policy: only_lane(replace(burst, capacity=replace(burst.capacity, on_demand=policy)))
        for policy in OnDemandPolicy
    }
    minimum, baseline, peak = by_policy.values()
    assert minimum.on_demand == burst.lanes[0].replicas.min < baseline.on_demand < peak.on_demand
    assert peak.spot == 0
    assert minimum.cost_usd_per_hour < baseline.cost_usd_per_hour < peak.cost_usd_per_hour
    assert any("the lane's minimum" in reason for reason in minimum.reasons)


def test_without_spot_on_offer_everything_is_on_demand_and_the_plan_says_why() -> None:
    sold = tuple(o for o in OFFERINGS if o.market is Market.ON_DEMAND)
    lane = planned(profile_with(rps=60, spot="burst"), offerings=sold).lanes[0]
    assert lane.spot == 0
    assert any("no spot is on offer" in reason for reason in lane.reasons)


def test_pinned_launch_settings_win_and_are_named() -> None:
    pinned = LaunchOverrides(
        max_num_seqs=12, max_model_len=6000, max_num_batched_tokens=768, gpu_memory_utilization=0.8
    )
    lane = only_lane(with_launch(profile_with(), pinned))
    launch = lane.launch
    assert (launch.max_num_seqs, launch.max_model_len, launch.max_num_batched_tokens) == (12, 6000, 768)
    assert launch.gpu_memory_utilization == 0.8
    assert any("pinned" in reason and "max_num_seqs 12" in reason for reason in lane.reasons)


@pytest.mark.parametrize("seqs", [100, 1024, 20_000])
def test_a_pinned_batch_is_never_changed_and_the_plan_says_what_of_it_can_run(seqs: int) -> None:
    lane = only_lane(with_launch(profile_with(), LaunchOverrides(max_num_seqs=seqs)))
    assert lane.launch.max_num_seqs == seqs
    assert lane.launch.max_num_batched_tokens >= seqs, "or the engine would not start"
    (reason,) = [each for each in lane.reasons if each.startswith("max_num_seqs ")]
    assert reason.startswith(f"max_num_seqs {seqs}: pinned by the profile")
    assert ("the KV cache holds" in reason) == (seqs > 100)


def test_a_pinned_batch_that_does_not_fit_an_engine_of_whole_contexts_is_refused() -> None:
    profile = with_launch(profile_with(), LaunchOverrides(max_num_seqs=1024, max_model_len=8192))
    with pytest.raises(InfeasiblePlanError, match="max_num_seqs pinned to 1024"):
        make_plan(
            profile,
            model_card=resolve_model(profile.model, CATALOGUE),
            catalogue=CATALOGUE,
            offerings=OFFERINGS,
            profile_hash="",
            whole_contexts=frozenset(lane.name for lane in profile.lanes),
        )


@pytest.mark.parametrize(
    ("heads", "kv_heads", "lawful"),
    [(32, 8, {1, 2, 4, 8, 16}), (28, 4, {1, 2, 4}), (40, 10, {1, 2, 5, 10}), (14, 2, {1, 2, 14}), (12, 12, {1, 2, 3, 4, 6, 12}), (64, 1, {1, 2, 4, 8, 16})],
)  # fmt: skip
def test_a_model_is_split_only_so_that_each_gpu_gets_as_many_heads_as_any_other(
    heads: int, kv_heads: int, lawful: set[int]
) -> None:
    card = replace(CATALOGUE.models["Qwen/Qwen3-8B"], num_heads=heads, num_kv_heads=kv_heads)
    assert {gpus for gpus in range(1, 17) if is_divisible(card, gpus)} == lawful


def test_the_longest_request_is_what_the_cache_holds_and_not_what_is_expected() -> None:
    little, much = (only_lane(profile_with(prompt=prompt, output=(50, 100))) for prompt in ((100, 200), (1500, 3000)))
    assert little.launch.max_model_len == much.launch.max_model_len
    assert little.launch.max_num_seqs > much.launch.max_num_seqs
    assert any("max_model_len" in reason and "all that the model takes" in reason for reason in little.reasons)


def test_a_lane_without_demand_gets_its_minimum_and_a_caution() -> None:
    profile = profile_with(rps=5)
    batch = replace(
        profile.lanes[0], name="batch", match=replace(profile.lanes[0].match, batch=True), replicas=ReplicaBounds(min=2)
    )
    plan = planned(replace(profile, lanes=(*profile.lanes, batch)))
    assert plan.lane("batch").replicas == 2
    assert any("batch" in caution for caution in plan.cautions)


def _promised_after(error: InfeasiblePlanError) -> tuple[str, str]:
    """Return (metric, limit) of "nearest feasible: TTFT P99 >= 412ms on L40S"."""
    words = error.hint.split("nearest feasible")[1].split()
    at = words.index(">=")
    return words[at - 2].lower(), words[at + 1]


@pytest.mark.parametrize(
    ("slo", "metric"),
    [("ttft: {p99: 45ms}", "ttft"), ("itl: {p99: 10ms}", "itl"), ("ttft: {p99: 60ms}, itl: {p99: 60ms}", "ttft")],
)
def test_an_infeasible_promise_names_the_nearest_feasible_one_and_it_is(slo: str, metric: str) -> None:
    with pytest.raises(InfeasiblePlanError, match=f"{metric.upper()} P99") as raised:
        planned(profile_with(slo=slo))
    named, limit = _promised_after(raised.value)
    assert named == metric
    others = [part for part in slo.split(", ") if not part.startswith(metric)]
    relaxed = ", ".join([f"{metric}: {{p99: {limit}}}", *others])
    assert only_lane(profile_with(slo=relaxed)).replicas >= 1


def test_too_many_replicas_says_how_many_and_what_the_bound_could_promise() -> None:
    with pytest.raises(InfeasiblePlanError, match=r"need \d+ replicas .* replicas\.max is 2") as raised:
        planned(profile_with(rps=60, most=2))
    assert "set lanes.all.replicas.max to" in raised.value.hint


def test_a_model_no_instance_holds_says_what_it_needs() -> None:
    with pytest.raises(InfeasiblePlanError, match=r"needs .*GiB for its weights"):
        planned(profile_with(model="meta-llama/Llama-3.1-70B-Instruct", gpus="A10G"))


def test_nothing_allowed_on_offer_says_what_is() -> None:
    with pytest.raises(InfeasiblePlanError, match="nothing on offer") as raised:
        planned(profile_with(gpus="B200"))
    assert "L40S" in raised.value.hint


def test_a_heads_price_is_in_the_plan_and_under_the_cap() -> None:
    alone = planned(profile_with()).cost_usd_per_hour
    within = _capped(profile_with(), max_cost_usd_per_hour=alone + 0.03)
    plan = planned(within, head_usd_per_hour=0.02)
    assert plan.cost_usd_per_hour == pytest.approx(alone + 0.02)
    assert plan.head_usd_per_hour == 0.02
    with pytest.raises(BudgetExceededError, match=r"its head among it at \$0\.04"):
        planned(within, head_usd_per_hour=0.04)


def _capped(profile: Profile, **caps: float) -> Profile:
    return replace(profile, capacity=replace(profile.capacity, **caps))  # type: ignore[arg-type]  # floats and ints


def test_caps_on_money_and_nodes_stop_the_plan_and_name_themselves() -> None:
    with pytest.raises(BudgetExceededError, match=r"max_cost_per_hour is \$1\.00"):
        planned(_capped(profile_with(), max_cost_usd_per_hour=1.0))
    with pytest.raises(BudgetExceededError, match="max_nodes is 1"):
        planned(_capped(profile_with(rps=60), max_nodes=1))


def test_larger_instances_are_bought_when_nodes_are_few() -> None:
    def nodes(lane: LanePlan) -> int:
        return lane.replicas

    free = only_lane(profile_with(rps=40, gpus="A10G, H100", slo="ttft: {p99: 3s}, itl: {p99: 200ms}"))
    tight = only_lane(
        _capped(
            profile_with(rps=40, gpus="A10G, H100", slo="ttft: {p99: 3s}, itl: {p99: 200ms}"), max_nodes=nodes(free) - 1
        )
    )
    assert nodes(tight) < nodes(free)
    assert tight.cost_usd_per_hour >= free.cost_usd_per_hour


def test_a_load_beyond_all_replicas_is_blamed_on_the_load():
    with pytest.raises(InfeasiblePlanError, match=r"rps need more than [\d,]+ replicas .* replicas\.max is") as caught:
        planned(profile_with(rps=10_000_000))
    assert "workload.peak_rps" in caught.value.hint
    assert "unpin" not in caught.value.hint


def test_a_lane_that_lends_computes_prompts_in_steps_its_guests_bear() -> None:
    def batch_chunk(lends: bool, itl: str) -> int:
        plan = planned(
            parse_profile(
                f"""
apiVersion: fleetctl/v1
name: lending
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}}
engine: vllm
provider: local
workload: {{peak_rps: 6, prompt_tokens: {{p50: 1020, p99: 4142}}, output_tokens: {{p50: 129, p99: 601}}, batch_share: 10%}}
lanes:
  chat: {{slo: {{ttft: {{p99: 2s}}, itl: {{p99: {itl}}}}}, max_wait: 1s}}
  batch:
    match: {{batch: true}}
    slo: {{completion: {{p95: 4h}}}}
    max_wait: 30m
    lends: {str(lends).lower()}
capacity: {{gpus: [L40S], max_nodes: 40}}
""",
                source="test",
            )
        )
        return plan.lane("batch").launch.max_num_batched_tokens

    alone = batch_chunk(lends=False, itl="40ms")
    assert batch_chunk(lends=True, itl="40ms") < alone
    assert batch_chunk(lends=True, itl="5s") == alone


@pytest.mark.parametrize("gpus", ["L40S", "H100"])
def test_a_looser_itl_never_costs_more(gpus: str) -> None:
    last = math.inf
    for itl_ms in (30, 38, 42, 46, 100):
        wanted = profile_with(rps=60, slo=f"ttft: {{p99: 1s}}, itl: {{p99: {itl_ms}ms}}", gpus=gpus)
        try:
            lane = only_lane(wanted)
        except InfeasiblePlanError:
            assert last == math.inf
            continue
        assert lane.cost_usd_per_hour <= last
        last = lane.cost_usd_per_hour
