"""Values as people read them."""

from __future__ import annotations

import pytest

from fleetctl.core.plan.changes import InstanceChoice, ModelVariant, PlanField, ReplicaSplit
from fleetctl.model.desired import Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.testing import samples
from fleetctl.views.overrides import format_override_change, override_clauses
from fleetctl.views.plan_changes import format_plan_value
from fleetctl.views.replicas import node_text


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (PlanField.REPLICAS, ReplicaSplit(replicas=3, on_demand=2, spot=1), "3 (2 on-demand, 1 spot)"),
        (
            PlanField.INSTANCE, InstanceChoice(instance_type="g6e", gpu="L40S", gpu_count=4, tensor_parallel=2),
            "g6e (4x L40S, TP 2)",
        ),
        (PlanField.MODEL, ModelVariant(model="m", quantization="fp8", kv_cache=""), "m fp8 (KV auto)"),
        (PlanField.TTFT_P99, 0.3, "300ms"),
        (PlanField.COST, 5.5, "$5.50"),
        (PlanField.GPU_MEMORY_UTILIZATION, 0.9, "0.9"),
        (PlanField.MAX_NUM_SEQS, 64, "64"),
        (PlanField.EXTRA_ARGS, ("--a", "--b"), "--a --b"),
        (PlanField.ENGINE, None, ""),
    ],
)  # fmt: skip
def test_a_plans_value_reads_as_in_the_plans_table(field, value, text):
    assert format_plan_value(field, value) == text


def test_what_is_set_by_hand_reads_as_the_command_that_set_it():
    assert format_override_change("replicas", None, 4) == "replicas automatic -> 4"
    assert format_override_change("ladder step", LadderStep.SHED, LadderStep.SHED) == "ladder step shed, unchanged"
    overrides = Overrides(replicas={"short": 4}, step={"long": LadderStep.SHED})
    assert override_clauses(overrides) == ("short scaled to 4", "long pinned at shed")


def test_where_a_replica_is_names_its_machine_zone_gpus_and_members() -> None:
    assert node_text(samples.replica()) == ""
    plain = samples.replica(node_id="i-1")
    assert node_text(plain) == "i-1, zone zone-a"
    share = samples.replica(node_id="i-1", machine_id="m-1", gpu_indices=(2,))
    assert node_text(share) == "i-1 on machine m-1, zone zone-a, GPU 2"
    spans = samples.replica(node_id="i-1", machine_id="m-1", gpu_indices=(0, 1), members=("m-2", "m-3"), node_count=3)
    assert node_text(spans) == "i-1 on machine m-1, zone zone-a, GPUs 0, 1, with members m-2, m-3"
