"""What a cluster may be asked for beyond the nodes that it has: Karpenter's NodePools, and pools that a profile names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.catalogue import Market
from fleetctl_kubernetes.offerings import offerings_of
from fleetctl_kubernetes.pools import pools_named, pools_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

L40S = "NVIDIA-L40S"


def node_pool(
    requirements: Mapping[str, Sequence[str]], *, limit: str = "", used: str = "", taint: str = "nvidia.com/gpu"
) -> dict[str, Any]:
    found = [{"key": key, "operator": "In", "values": list(values)} for key, values in requirements.items()]
    spec: dict[str, Any] = {
        "template": {
            "metadata": {"labels": {"team": "llm"}},
            "spec": {"requirements": found, "taints": [{"key": taint, "effect": "NoSchedule"}]},
        }
    }
    if limit:
        spec["limits"] = {"nvidia.com/gpu": limit}
    status = {"resources": {"nvidia.com/gpu": used}} if used else {}
    return {"metadata": {"name": "gpu"}, "spec": spec, "status": status}


def node(count: int, *, zone: str = "a", spot: bool = False) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": L40S, "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"}
    labels |= {"karpenter.sh/capacity-type": "spot"} if spot else {}
    return {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": str(count)}}}


BOTH = {
    "nvidia.com/gpu.product": [L40S], "topology.kubernetes.io/zone": ["a", "b"],
    "karpenter.sh/capacity-type": ["spot", "on-demand"], "karpenter.k8s.aws/instance-gpu-count": ["1", "4"],
}  # fmt: skip


def test_a_cluster_without_a_gpu_node_offers_what_its_node_pool_can_bring() -> None:
    sold = offerings_of([], pools_of(node_pool(BOTH, limit="16", used="4")))
    assert {o.key for o in sold} == {
        f"{count}x{L40S}/{zone}/{market}" for count in (1, 2, 4) for zone in "ab" for market in ("spot", "on-demand")
    }
    assert {o.gpu for o in sold} == {"L40S"}
    assert {o.pool_gpus for o in sold} == {12}  # its limit counts once, whatever zones and markets it is for
    assert {o.notice_s for o in sold if o.market is Market.SPOT} == {120.0}
    assert min(o.boot_s for o in sold) > 60.0  # a node has to come first


def test_what_is_there_starts_sooner_and_counts_beside_what_may_come() -> None:
    sold = {o.key: o for o in offerings_of([node(8)], pools_of(node_pool(BOTH, limit="16")))}
    here, brought = sold[f"1x{L40S}/a/on-demand"], sold[f"1x{L40S}/b/spot"]
    assert (here.pool_gpus, brought.pool_gpus) == (24, 24)
    assert here.boot_s < brought.boot_s
    assert f"8x{L40S}/a/on-demand" in sold
    assert f"8x{L40S}/b/spot" not in sold


@pytest.mark.parametrize(
    "pool",
    [
        node_pool({"karpenter.sh/capacity-type": ["spot"]}),  # which GPUs it has nobody says
        node_pool(BOTH, taint="team"),  # no pod of ours would run there
        {**node_pool(BOTH), "metadata": {"name": "gpu", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_a_pool_that_no_pod_could_use_offers_nothing(pool: dict[str, Any]) -> None:
    assert offerings_of([], pools_of(pool)) == ()


def test_a_profile_names_pools_of_another_autoscaler() -> None:
    sold = offerings_of([], pools_named((f"4x{L40S}/a/spot", "8xNVIDIA-H100-80GB-HBM3/on-demand")))
    keys = {o.key for o in sold}
    assert {f"4x{L40S}/a/spot", "8xNVIDIA-H100-80GB-HBM3/cluster/on-demand"} <= keys
    assert not [key for key in keys if key.startswith("8xNVIDIA-L40S")]
