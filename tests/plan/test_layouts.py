"""Over which GPUs a replica lies: heads split, stages, machines and ranks, each with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings, strategies as st

from fleetctl.catalogue.known import resolve_model
from fleetctl.core.plan import make_plan
from fleetctl.core.plan.layouts import (
    EXPERT_GPUS_MIN,
    LayoutRules,
    is_divisible,
    layouts,
    spanning_layouts,
    staged_layouts,
)
from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.profile import LaunchOverrides, Profile
from tests.plan.profiles import CATALOGUE, profile_with, with_launch

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan

ALL = LayoutRules(has_stages=True, has_ranks=True, spans_machines=True)
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
MIXTURE = "mistralai/Mixtral-8x7B-Instruct-v0.1"
RELAXED = "ttft: {p99: 20s}, itl: {p99: 1s}"


def nodes(count: int, *, gpu: str = "L40S", price: float = 30.0, pool: int | None = None) -> tuple[Offering, ...]:
    """Return nodes of so many GPUs, for which one price is paid."""
    return (
        Offering(
            provider="test", instance_type=f"{gpu}.{count}x", gpu=gpu, gpu_count=count, region="here", zone="a",
            market=Market.ON_DEMAND, price_usd_per_hour=price, pool_gpus=pool,
        ),
    )  # fmt: skip


def lane_of(profile: Profile, offerings: tuple[Offering, ...], rules: LayoutRules = ALL) -> LanePlan:
    """Return the plan of a profile's only lane."""
    plan = make_plan(
        profile,
        model_card=resolve_model(profile.model, CATALOGUE),
        catalogue=CATALOGUE,
        offerings=offerings,
        profile_hash="",
        layouts={"all": rules},
    )
    return plan.lanes[0]


def reason(lane: LanePlan, name: str) -> str:
    (found,) = [each for each in lane.reasons if each.startswith(f"{name} ")]
    return found


def large(**pinned: Any) -> Profile:
    """Return 70B parameters in FP8, which two A100 of 40 GB hold without room for its longest request."""
    profile = profile_with(model=LLAMA_70B, precision="fp8", rps=0.2, slo=RELAXED, gpus="A100-40GB")
    return with_launch(profile, LaunchOverrides(**pinned))


def test_stages_take_the_gpus_that_heads_cannot_be_split_over() -> None:
    three = nodes(3, gpu="A100-40GB")
    lane = lane_of(large(max_model_len=16384), three)
    assert (lane.tensor_parallel, lane.stages, lane.node_count, lane.gpus_each_node) == (1, 3, 1, 3)
    assert "holds" in reason(lane, "pipeline_parallel_local")
    with pytest.raises(InfeasiblePlanError):
        lane_of(large(max_model_len=16384), three, LayoutRules())


def test_no_stage_is_planned_where_tensor_parallelism_holds_the_model() -> None:
    assert lane_of(large(), nodes(4, gpu="A100-40GB")).stages == 1
    assert lane_of(profile_with(rps=1), nodes(3)).stages == 1


def test_a_model_that_no_machine_holds_spans_the_fewest_that_do() -> None:
    profile = profile_with(model=LLAMA_70B, rps=0.2, slo=RELAXED)
    lane = lane_of(profile, nodes(2))
    assert (lane.tensor_parallel, lane.ranks) == (2, 1)
    assert lane.node_count > 1
    assert "fewest" in reason(lane, "pipeline_parallel")
    fewer = with_launch(profile, LaunchOverrides(pipeline_parallel=lane.node_count - 1))
    with pytest.raises(InfeasiblePlanError):
        lane_of(fewer, nodes(2))
    with pytest.raises(InfeasiblePlanError, match="for its weights") as refused:
        lane_of(profile, nodes(2), replace(ALL, spans_machines=False))
    assert "span several machines" in refused.value.hint


def test_ranks_fill_a_whole_node_where_splitting_heads_thinner_would_need_more_of_them() -> None:
    profile = profile_with(rps=60, gpus="A100-80GB", slo="ttft: {p99: 2s}, itl: {p99: 100ms}")
    node = nodes(8, gpu="A100-80GB")
    one, several = lane_of(profile, node, LayoutRules()), lane_of(profile, node)
    assert (one.ranks, one.tensor_parallel) == (1, 8)
    assert several.ranks > 1
    assert several.gpus_each_node == 8
    assert several.cost_usd_per_hour < one.cost_usd_per_hour
    assert several.sequences_max == several.ranks * several.launch.max_num_seqs
    assert several.throughput is not None
    assert several.throughput.rps * several.replicas >= several.rps
    why = reason(several, "data_parallel")
    assert f"{several.ranks} x TP {several.tensor_parallel}" in why
    assert "1 x TP 8" in why
    assert "$" in why


def test_replicas_of_their_own_are_planned_where_gpus_are_sold_by_share() -> None:
    profile = profile_with(rps=60, gpus="A100-80GB", slo="ttft: {p99: 2s}, itl: {p99: 100ms}")
    shares = tuple(share for count in (1, 2, 4, 8) for share in nodes(count, gpu="A100-80GB", price=0.0, pool=8))
    lane = lane_of(profile, shares)
    assert lane.ranks == 1
    assert lane.replicas > 1
    assert "lost one by one" in reason(lane, "data_parallel")


def test_ranks_of_a_mixture_of_experts_are_never_chosen_unasked_and_share_its_experts() -> None:
    profile = profile_with(model=MIXTURE, rps=40, gpus="H100", slo="ttft: {p99: 2s}, itl: {p99: 100ms}")
    node = nodes(8, gpu="H100")
    assert lane_of(profile, node).ranks == 1
    # Its 93 GB do not fit one GPU, and an eighth of the experts does.
    lane = lane_of(with_launch(profile, LaunchOverrides(data_parallel=8)), node)
    assert (lane.ranks, lane.tensor_parallel, lane.gpus_each_node) == (8, 1, 8)


@pytest.mark.parametrize(
    ("pinned", "sizes"),
    [
        ({"data_parallel": 4}, (2, 1, 4)),
        ({"data_parallel": 2, "tensor_parallel": 2}, (2, 1, 2)),
        ({"pipeline_parallel_local": 2}, (4, 2, 1)),
        ({"pipeline_parallel_local": 2, "data_parallel": 2, "tensor_parallel": 2}, (2, 2, 2)),
        ({"data_parallel": 1}, (8, 1, 1)),
    ],
)
def test_a_pinned_size_is_kept_and_the_node_reserved_for_the_product(
    pinned: dict[str, Any], sizes: tuple[int, int, int]
) -> None:
    profile = with_launch(profile_with(rps=1, gpus="H100"), LaunchOverrides(**pinned))
    lane = lane_of(profile, nodes(8, gpu="H100"))
    assert (lane.tensor_parallel, lane.stages, lane.ranks) == sizes
    assert lane.gpus_each_node == sizes[0] * sizes[1] * sizes[2]
    assert all(f"{name} {value}" in " ".join(lane.reasons) for name, value in pinned.items())


@pytest.mark.parametrize(
    ("pinned", "says"),
    [
        ({"data_parallel": 16}, "data_parallel is pinned to 16, and a node on offer has 8 GPUs at most"),
        ({"data_parallel": 4, "tensor_parallel": 4}, "tensor_parallel is pinned to 4 and data_parallel is pinned to 4"),
        ({"pipeline_parallel_local": 64}, "pipeline_parallel_local is pinned to 64, and meta-llama/Llama-3.1-8B-Instruct has 32 layers"),
        ({"pipeline_parallel": 2, "data_parallel": 2}, "ranks of one replica lie on one machine"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_had_are_refused(pinned: dict[str, Any], says: str) -> None:
    profile = with_launch(profile_with(rps=1, gpus="H100"), LaunchOverrides(**pinned))
    with pytest.raises(InfeasiblePlanError, match=says):
        lane_of(profile, nodes(8, gpu="H100"))


@settings(max_examples=200)
@given(
    model=st.sampled_from(sorted(CATALOGUE.models)),
    count=st.integers(1, 16),
    tensor_parallel=st.sampled_from([None, 1, 2, 4]),
    ranks=st.sampled_from([None, 1, 2]),
    stages=st.sampled_from([None, 1, 2, 3]),
)
def test_every_layout_is_lawful_keeps_its_pins_and_fits_its_node(
    model: str, count: int, tensor_parallel: int | None, ranks: int | None, stages: int | None
) -> None:
    card = CATALOGUE.models[model]
    assume(tensor_parallel is None or is_divisible(card, tensor_parallel))  # else the pin itself is refused
    pinned = LaunchOverrides(tensor_parallel=tensor_parallel, data_parallel=ranks, pipeline_parallel_local=stages)
    lane, (node,) = replace(profile_with(rps=1).lanes[0], launch=pinned), nodes(count)
    found = [*layouts(lane, card, node, ALL), *staged_layouts(lane, card, node), *spanning_layouts(lane, card, node)]
    for layout in found:
        assert 0 < layout.gpus <= count
        is_whole = layout.tensor_parallel * (ranks or 1) >= EXPERT_GPUS_MIN  # a GPU has whole experts then
        assert is_divisible(card, layout.tensor_parallel, whole_experts=is_whole)
        assert layout.stages * layout.machines <= card.num_layers
        for value, wanted in (
            (layout.tensor_parallel, tensor_parallel),
            (layout.ranks, ranks),
            (layout.stages, stages),
        ):
            assert wanted in {None, value}


@pytest.mark.parametrize(
    ("groups", "lawful"),
    [
        ({"mlp_groups": 231}, {1}),
        ({"mlp_groups": 232}, {1, 2, 4, 8}),
        ({"expert_groups": 6}, {1, 2}),
        ({"mlp_groups": 8, "expert_groups": 6}, {1, 2}),
        ({}, {1, 2, 4, 8, 16}),
    ],
)
def test_no_split_cuts_groups_of_quantized_weights_that_share_a_scale(groups: dict[str, Any], lawful: set[int]) -> None:
    card = replace(CATALOGUE.models[LLAMA_70B], **groups)
    assert {count for count in (1, 2, 4, 8, 16) if is_divisible(card, count)} == lawful
    assert is_divisible(replace(card, mlp_groups=None), 4, whole_experts=True)


def test_a_split_that_would_cut_groups_of_weights_is_refused_where_it_is_pinned_and_never_chosen() -> None:
    card = replace(CATALOGUE.models[LLAMA_70B], mlp_groups=6)

    def planned(**pinned: Any) -> LanePlan:
        plan = make_plan(
            large(**pinned), model_card=card, catalogue=CATALOGUE, offerings=nodes(4, gpu="A100-40GB"), profile_hash="",
            layouts={"all": ALL},
        )  # fmt: skip
        return plan.lanes[0]

    with pytest.raises(InfeasiblePlanError, match="splits the 6 groups of quantized weights across an MLP"):
        planned(tensor_parallel=4)
    assert planned().tensor_parallel in (1, 2)
