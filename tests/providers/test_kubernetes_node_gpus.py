"""Which of a node's GPUs are planned with: whole ones, known by discovery or a cloud, on nodes that take a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue import kubernetes_nodes
from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.node_gpus import node_gpus
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Market
from fleetctl_kubernetes.node_gpus import gpus_of, is_whole, summary
from fleetctl_kubernetes.offerings import gpu_name, offerings_of
from fleetctl_kubernetes.placement import labels_of
from fleetctl_kubernetes.pools import pools_named, pools_of, refused

if TYPE_CHECKING:
    from pathlib import Path

A100 = "NVIDIA-A100-SXM4-80GB"


def node(
    labels: dict[str, str], *taints: str, gpus: int = 8, allocatable: dict[str, str] | None = None
) -> dict[str, Any]:
    def taint(text: str) -> dict[str, str]:
        name, _, effect = text.rpartition(":")
        key, _, value = name.partition("=")
        return {"key": key, "effect": effect, **({"value": value} if value else {})}

    shown = {"nvidia.com/gpu": str(gpus), **(allocatable or {})}
    return {
        "metadata": {"name": "n", "labels": labels},
        "spec": {"taints": [taint(each) for each in taints]},
        "status": {"allocatable": shown},
    }


def product(name: str) -> dict[str, str]:
    return {"nvidia.com/gpu.product": name}


def left_out(*nodes: dict[str, Any]) -> str:
    return "\n".join(summary(part for each in nodes for part in gpus_of(each).left_out))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        # The GPU operator's documentation of MIG under the `single` strategy.
        (
            node({**product(f"{A100}-MIG-1g.10gb"), "nvidia.com/mig.strategy": "single"}, gpus=56),
            f"56 MIG slices are not planned with: of {A100}-MIG-1g.10gb",
        ),
        (node({**product(A100), "nvidia.com/gpu.slices.gi": "1"}, gpus=7), "7 MIG slices"),
        # Of time-slicing: 4 physical GPUs, 16 in the node's capacity.
        (node({**product("Tesla-T4-SHARED"), "nvidia.com/gpu.replicas": "4"}, gpus=16), "16 shares of GPUs"),
        (
            node({**product(A100), "nvidia.com/gpu.sharing-strategy": "time-slicing"}, gpus=16),
            "nvidia.com/gpu.sharing-strategy time-slicing",
        ),
        (node({**product(A100), "nvidia.com/gpu.sharing-strategy": "mps"}, gpus=16), "16 shares of GPUs"),
        (
            node(
                {
                    "cloud.google.com/gke-accelerator": "nvidia-l4",
                    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
                    "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
                },
                gpus=4,
            ),
            "4 shares of GPUs are not planned with: of nvidia-l4",
        ),
        (
            node(
                {
                    "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
                    "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
                },
                gpus=7,
            ),
            "7 MIG slices are not planned with: of nvidia-tesla-a100 in 1g.5gb",
        ),
        (node({**product("NVIDIA-A10-4Q"), "nvidia.com/vgpu.present": "true"}, gpus=1), "virtual"),
        (node({"node.kubernetes.io/instance-type": "Standard_NV6ads_A10_v5"}, gpus=1), "no label says which"),
        (node({}), "8 GPUs are not planned with: of nodes of which no label says which GPUs they have"),
        (node(product(A100), "team=vision:NoSchedule"), "the taint team=vision:NoSchedule"),
        (node(product(A100), "nvidia.com/gpu=present:NoExecute"), "the taint nvidia.com/gpu=present:NoExecute"),
        (node(product(A100), "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"), "scalesetpriority=spot"),
        (node(product(A100), "sku=cpu:NoSchedule"), "the taint sku=cpu:NoSchedule"),
        ({**node(product(A100)), "spec": {"unschedulable": True}}, "8 GPUs are not planned with: of nodes that are"),
    ],
)
def test_what_no_replica_can_have_as_a_whole_gpu_is_not_offered_and_is_counted(found: dict[str, Any], why: str) -> None:
    assert offerings_of([found]) == ()
    assert why in left_out(found)


@pytest.mark.parametrize(
    "found",
    [
        node(product(A100), "nvidia.com/gpu=present:NoSchedule"),
        node(product(A100), "sku=gpu:NoSchedule"),
        node(product(A100), "team=vision:PreferNoSchedule"),
        node(
            {**product(A100), "kubernetes.azure.com/scalesetpriority": "spot"},
            "kubernetes.azure.com/scalesetpriority=spot:NoSchedule",
            "sku=gpu:NoSchedule",
        ),
        node({**product(A100), "nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "1"}),
        node({**product(A100), "nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "single"}),
    ],
)
def test_whole_gpus_whose_taints_replicas_tolerate_are_offered(found: dict[str, Any]) -> None:
    assert {each.gpu for each in offerings_of([found])} == {"A100-80GB"}
    assert left_out(found) == ""


def test_of_a_node_with_slices_beside_whole_gpus_the_whole_ones_are_offered() -> None:
    mixed = node(product(A100), gpus=4, allocatable={"nvidia.com/mig-1g.10gb": "14", "nvidia.com/gpu.shared": "0"})
    assert max(each.gpu_count for each in offerings_of([mixed])) == 4
    assert left_out(mixed) == "14 MIG slices are not planned with: nvidia.com/mig-1g.10gb, no whole ones"


def test_what_is_left_out_is_counted_over_all_nodes_by_its_reason() -> None:
    found = [
        node(product(A100), "team=vision:NoSchedule"),
        node(product("NVIDIA-L4"), "team=vision:NoSchedule", gpus=4),
    ]
    assert left_out(*found, node({})).splitlines() == [
        (
            "8 GPUs are not planned with: of nodes of which no label says which GPUs they have "
            "(nvidia.com/gpu.product of GPU feature discovery)"
        ),
        "12 GPUs are not planned with: of nodes with the taint team=vision:NoSchedule, which replicas do not tolerate",
    ]


CLOUDS = [
    ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4", "T4"),
    ("cloud.google.com/gke-accelerator", "nvidia-l4", "L4"),
    ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", "A100-40GB"),
    ("cloud.google.com/gke-accelerator", "nvidia-a100-80gb", "A100-80GB"),
    ("cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb", "H100"),
    ("cloud.google.com/gke-accelerator", "nvidia-h200-141gb", "H200"),
    ("karpenter.k8s.aws/instance-gpu-name", "l40s", "L40S"),
    ("karpenter.k8s.aws/instance-gpu-name", "h100", "H100"),
    ("node.kubernetes.io/instance-type", "p5.48xlarge", "H100"),
    ("node.kubernetes.io/instance-type", "p4de.24xlarge", "A100-80GB"),
    ("node.kubernetes.io/instance-type", "g6e.12xlarge", "L40S"),
    ("node.kubernetes.io/instance-type", "Standard_NC24ads_A100_v4", "A100-80GB"),
    ("node.kubernetes.io/instance-type", "Standard_ND96isr_H100_v5", "H100"),
]


@pytest.mark.parametrize(("label", "value", "gpu"), CLOUDS)
def test_a_clouds_label_says_which_gpus_a_node_has_and_leads_pods_there(label: str, value: str, gpu: str) -> None:
    sold = offerings_of([node({label: value, "kubernetes.azure.com/accelerator": "nvidia"}, gpus=4)])
    assert {each.gpu for each in sold} == {gpu}
    assert {each.gpu_count for each in sold} == {1, 2, 4}
    assert all(labels_of(each.key) == {label: value} for each in sold)


def test_discovery_outranks_a_cloud_and_an_instance_type_an_ambiguous_name() -> None:
    both = {"karpenter.k8s.aws/instance-gpu-name": "a100", "node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert {each.gpu for each in offerings_of([node(both)])} == {"A100-40GB"}
    (sold, *_) = offerings_of([node({**both, **product("NVIDIA-A100-SXM4-40GB")})])
    assert labels_of(sold.key) == product("NVIDIA-A100-SXM4-40GB")


def test_every_gpu_that_clouds_name_is_one_of_the_catalogues_or_an_old_one() -> None:
    known = node_gpus()
    named = {*known.gke_accelerators.values(), *known.gpu_names.values()}
    named |= {*known.products.values()}
    named |= {gpu for gpu, _ in known.instance_types.values()}
    assert named - set(load_catalogue().gpus) == {"V100-16GB"}


def test_a_listed_product_is_read_as_its_words_would_be_and_a_whole_gpu() -> None:
    known = load_catalogue().gpus
    for listed, gpu in node_gpus().products.items():
        assert gpu_name(f"{listed}-Of-Tomorrow", known) == gpu_name(listed, known) == gpu
        assert node_gpus().label_of(listed) == "nvidia.com/gpu.product"
        assert is_whole(listed)


def test_a_users_own_file_adds_what_a_cloud_calls_its_gpus_and_a_wrong_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "fleetctl/profiles/node-gpus.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("instance_types: {g9.metal: [H200, 8]}\n")
    types = {each: {"node.kubernetes.io/instance-type": each} for each in ("g9.metal", "p5.48xlarge")}
    assert {each.gpu for labels in types.values() for each in offerings_of([node(labels)])} == {"H200", "H100"}
    own.write_text("instance_types: {g9.metal: H200}\n")
    with pytest.raises(ConfigError, match=str(own)):
        offerings_of([node(types["g9.metal"])])


def node_pool(requirements: dict[str, list[str]], *taints: dict[str, str]) -> dict[str, Any]:
    found = [{"key": key, "operator": "In", "values": values} for key, values in requirements.items()]
    return {"metadata": {"name": "gpu"}, "spec": {"template": {"spec": {"requirements": found, "taints": [*taints]}}}}


def test_a_node_pool_says_its_gpus_by_karpenters_name_or_by_instance_types() -> None:
    by_name = offerings_of([], pools_of(node_pool({"karpenter.k8s.aws/instance-gpu-name": ["l40s"]})))
    assert {(each.gpu, labels_of(each.key)["karpenter.k8s.aws/instance-gpu-name"]) for each in by_name} == {
        ("L40S", "l40s")
    }
    types = node_pool({"node.kubernetes.io/instance-type": ["m7i.large", "g6e.12xlarge", "p5.48xlarge"]})
    by_type = offerings_of([], pools_of(types))
    assert {(each.gpu, each.gpu_count) for each in by_type} == {
        *(("L40S", count) for count in (1, 2, 4)), *(("H100", count) for count in (1, 2, 4, 8)),
    }  # fmt: skip


def test_a_node_pool_whose_taints_no_replica_tolerates_is_left_out_by_name() -> None:
    spot = {"key": "karpenter.sh/capacity-type", "value": "spot", "effect": "NoSchedule"}
    gpus = {"nvidia.com/gpu.product": ["NVIDIA-L40S"], "karpenter.sh/capacity-type": ["spot", "on-demand"]}
    assert {each.market for each in pools_of(node_pool(gpus, spot))} == {Market.SPOT}
    assert refused(node_pool(gpus, spot)) == ""
    theirs = node_pool(gpus, {"key": "team", "value": "vision", "effect": "NoSchedule"})
    assert list(pools_of(theirs)) == []
    assert "NodePool gpu is not planned with" in refused(theirs)
    assert "team=vision:NoSchedule" in refused(theirs)
    assert refused(node_pool({}, spot)) == ""  # it has no GPUs


def test_no_pool_brings_slices_or_shares() -> None:
    assert list(pools_named((f"7x{A100}-MIG-1g.10gb/spot", "16xTesla-T4-SHARED/on-demand"))) == []
    assert list(pools_of(node_pool({"nvidia.com/gpu.product": [f"{A100}-MIG-1g.10gb"]}))) == []


def test_pods_with_gpus_keep_off_nodes_whose_gpus_are_not_whole() -> None:
    (term,) = kubernetes_nodes.affinity(Market.ON_DEMAND, {})["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    keys = {each["key"] for each in term["matchExpressions"]}
    assert keys >= {
        "nvidia.com/gpu.sharing-strategy",
        "cloud.google.com/gke-gpu-partition-size",
        "nvidia.com/gpu.slices.gi",
    }
