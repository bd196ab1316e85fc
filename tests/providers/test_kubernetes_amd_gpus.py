"""AMD's GPUs of a cluster: offered as AMD's node labeller and clouds name them, asked for by AMD's device plugin's name."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.testing.samples import node_request
from fleetctl_kubernetes.manifest import pod_of
from fleetctl_kubernetes.node_gpus import gpus_of, summary
from fleetctl_kubernetes.offerings import offerings_of
from fleetctl_kubernetes.placement import labels_of
from fleetctl_kubernetes.pools import pools_named, pools_of

ANCHOR = {"kind": "ConfigMap", "metadata": {"name": "anchor", "uid": "u"}}
PRODUCT, PARTITION = "amd.com/gpu.product-name", "amd.com/gpu.compute-memory-partition"
MI300X = "AMD_Instinct_MI300X_OAM"
TAINT = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}  # of Oracle's nodes


def node(labels: dict[str, str], *taints: dict[str, str], **allocatable: str) -> dict[str, Any]:
    shown = {f"amd.com/{name}": count for name, count in (allocatable or {"gpu": "8"}).items()}
    return {
        "metadata": {"name": "n", "labels": labels}, "spec": {"taints": [*taints]}, "status": {"allocatable": shown},
    }  # fmt: skip


def left_out(found: dict[str, Any]) -> str:
    return "; ".join(summary(gpus_of(found).left_out))


@pytest.mark.parametrize(
    ("label", "value", "gpu"),
    [
        (PRODUCT, MI300X, "MI300X"),
        (PRODUCT, "AMD_Instinct_MI325_OAM", "MI325X"),
        (PRODUCT, "AMD_Instinct_MI355_OAM", "MI355X"),
        (PRODUCT, "AMD_Instinct_MI300X_VF", "MI300X"),  # in no list: by its words
        ("node.kubernetes.io/instance-type", "Standard_ND96isr_MI300X_v5", "MI300X"),
    ],
)
def test_a_label_says_which_gpus_they_are_and_pods_ask_for_those(label: str, value: str, gpu: str) -> None:
    sold = offerings_of([node({label: value, PARTITION: "spx_nps1"}, TAINT)])
    assert {(each.gpu, each.gpu_count) for each in sold} == {(gpu, count) for count in (1, 2, 4, 8)}
    most = max(sold, key=lambda each: each.gpu_count)
    assert labels_of(most.key) == {label: value}
    pod = pod_of(
        node_request("t-1", argv=("serve",), offering=most.key, gpu_count=8), image="i", anchor=ANCHOR, secrets=()
    )["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "8"}
    assert "amd.com/gpu" in {each["key"] for each in pod["tolerations"]}
    assert "nvidia.com" not in str(pod)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (node({PRODUCT: MI300X, PARTITION: "cpx_nps4"}, gpu="64"), f"64 partitions of GPUs are not planned with: of {MI300X} in cpx_nps4"),
        (node({PRODUCT: MI300X}, cpx_nps1="64"), "64 partitions of GPUs are not planned with: amd.com/cpx_nps1"),
        (node({}), "8 GPUs are not planned with: of nodes of which no label says which GPUs they have (amd.com/gpu.product-name"),
        (node({"nvidia.com/gpu.product": "NVIDIA-L40S"}), "no label says which GPUs they have"),
        (node({PRODUCT: MI300X}, {"key": "nvidia.com/gpu", "effect": "NoSchedule"}), "the taint nvidia.com/gpu:NoSchedule"),
    ],
)  # fmt: skip
def test_what_is_no_whole_gpu_of_a_known_kind_is_left_out_and_said(found: dict[str, Any], why: str) -> None:
    assert offerings_of([found]) == ()
    assert why in left_out(found)


def test_pools_bring_them_within_their_limit() -> None:
    (named,) = pools_named((f"8x{MI300X}/zone-a/on-demand",))
    assert {each.gpu for each in offerings_of([], [named])} == {"MI300X"}
    template = {
        "metadata": {"labels": {PRODUCT: MI300X}},
        "spec": {"taints": [TAINT], "requirements": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]},
    }  # fmt: skip
    limits, taken = {"amd.com/gpu": "16", "nvidia.com/gpu": "0"}, {"resources": {"amd.com/gpu": "8"}}
    node_pool = {"metadata": {"name": "amd"}, "spec": {"template": template, "limits": limits}, "status": taken}
    (pool,) = pools_of(node_pool)
    assert (pool.product, pool.gpus_left) == (MI300X, 8)
