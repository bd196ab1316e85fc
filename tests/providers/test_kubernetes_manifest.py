"""What is put into a pod, and what is read out of nodes, without a cluster; the rest is in tests/kube."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetctl.catalogue.known import load_catalogue
from fleetctl.engine_kit.containers import container_launch
from fleetctl.model.catalogue import Market
from fleetctl.model.node import ContainerLaunch, NoticeKind
from fleetctl.plugins import load_engine
from fleetctl.testing.samples import node_request
from fleetctl_kubernetes.manifest import OWN_ADDRESS, pod_of
from fleetctl_kubernetes.notices import notice_of
from fleetctl_kubernetes.offerings import gpu_name, offerings_of
from tests.render import fleets

ANCHOR = {"kind": "ConfigMap", "metadata": {"name": "anchor", "uid": "1"}}


def vllm_in_a_container(**launch: Any) -> ContainerLaunch:
    """Return what a lane on vLLM, with these of its launch settings, is started as in its image."""
    profile, plan = fleets.fleet((fleets.lane("short", "vllm"), fleets.lane_plan("short", "vllm")))
    lane = profile.lane("short")
    lane = replace(lane, launch=replace(lane.launch, **launch))
    lane_plan = plan.lane("short")
    engine = load_engine("vllm")
    command = engine.launch(plan=plan, lane=lane, lane_plan=lane_plan, host=OWN_ADDRESS, port=8000)
    found = container_launch(engine, command, lane, lane_plan.launch)
    assert found is not None
    return found


def test_vllm_is_started_by_its_publishers_entry_point_on_the_pods_own_address() -> None:
    request = node_request("t-1", argv=("vllm",), container=vllm_in_a_container(), gpu_count=2)
    (container,) = pod_of(request, image="", anchor=ANCHOR, secrets=())["spec"]["containers"]
    assert container["image"].startswith("vllm/vllm-openai:v")
    assert container["command"] == ["vllm", "serve"]
    assert container["args"][0] == fleets.MODEL
    assert container["args"][container["args"].index("--host") + 1] == "$(POD_IP)"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_a_lanes_image_and_volumes_are_its_pods() -> None:
    launch = vllm_in_a_container(image="mine/vllm:1", volumes=("/srv/adapters:/adapters:ro", "scratch:/tmp/x:rw"))
    spec = pod_of(node_request("t-1", container=launch), image="", anchor=ANCHOR, secrets=())["spec"]
    assert spec["containers"][0]["image"] == "mine/vllm:1"
    sources = [each.get("hostPath", each.get("persistentVolumeClaim")) for each in spec["volumes"][1:]]
    assert sources == [{"path": "/srv/adapters"}, {"claimName": "scratch"}]
    mounts = spec["containers"][0]["volumeMounts"][1:]
    assert [(each["mountPath"], each.get("readOnly", False)) for each in mounts] == [
        ("/adapters", True), ("/tmp/x", False),  # noqa: S108  # of a container
    ]  # fmt: skip


def node(count: int, labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": str(count)}}}


def test_offerings_are_shares_of_what_nodes_have_by_product_zone_and_market() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "topology.kubernetes.io/zone": "a"}
    leaving = node(8, labels) | {"spec": {"unschedulable": True}}
    sold = offerings_of([node(8, labels), node(4, labels | {"karpenter.sh/capacity-type": "spot"}), leaving])
    h100 = "NVIDIA-H100-80GB-HBM3/a"
    assert {(each.key, each.pool_gpus) for each in sold} == {
        *((f"{n}x{h100}/on-demand", 12) for n in (1, 2, 4, 8)),
        *((f"{n}x{h100}/spot", 12) for n in (1, 2, 4)),
    }
    assert {each.gpu for each in sold} == {"H100"}
    assert {each.notice_s for each in sold if each.market is Market.SPOT} == {120.0}


def test_a_lane_may_take_the_gpus_of_all_zones() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-L40S"}
    sold = offerings_of(node(8, labels | {"topology.kubernetes.io/zone": zone}) for zone in "abc")
    assert {(each.zone, each.pool_gpus) for each in sold} == {(zone, 24) for zone in "abc"}


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-H200", "H200"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA-L40S", "L40S"),
        ("NVIDIA-L4", "L4"),
        ("NVIDIA-A10G", "A10G"),
        ("NVIDIA-H100-NVL", "H100 NVL"),
        ("NVIDIA-GeForce-RTX-4090", "RTX 4090"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX PRO 6000 Server"),
        ("NVIDIA-GB200", "GB200"),
        ("NVIDIA-Unheard-Of", "NVIDIA-Unheard-Of"),
    ],
)
def test_a_products_label_leads_to_the_catalogues_gpu(product: str, name: str) -> None:
    assert gpu_name(product, load_catalogue().gpus) == name


@pytest.mark.parametrize(
    ("taint", "kind", "takes"),
    [
        ("karpenter.sh/disrupted", NoticeKind.INTERRUPTION, True),
        ("aws-node-termination-handler/spot-itn", NoticeKind.INTERRUPTION, True),
        ("aws-node-termination-handler/rebalance-recommendation", NoticeKind.REBALANCE, False),
        ("remediator.kubernetes.azure.com/unschedulable", NoticeKind.INTERRUPTION, True),
        ("node.kubernetes.io/unreachable", NoticeKind.NOT_READY, False),
    ],
)
def test_taints_of_clouds_are_notices(taint: str, kind: NoticeKind, *, takes: bool) -> None:
    others = [{"key": "nvidia.com/gpu"}, {"key": "node.kubernetes.io/not-ready"}]
    found = notice_of({"spec": {"taints": [*others, {"key": taint}]}})
    assert found is not None
    assert (found.kind, found.takes_node) == (kind, takes)
    assert notice_of({"spec": {"taints": others[:1]}}) is None


@pytest.mark.parametrize(
    ("label", "value", "taint", "notice_s"),
    [
        ("karpenter.sh/capacity-type", "spot", "karpenter.sh/disrupted", 120),
        ("eks.amazonaws.com/capacityType", "SPOT", "aws-node-termination-handler/spot-itn", 120),
        ("cloud.google.com/gke-spot", "true", "cloud.google.com/impending-node-termination", 15),
        ("kubernetes.azure.com/scalesetpriority", "spot", "remediator.kubernetes.azure.com/unschedulable", 30),
    ],
)
def test_a_spot_node_is_taken_when_its_clouds_notice_is_over(
    label: str, value: str, taint: str, notice_s: float
) -> None:
    written: dict[str, Any] = {"f:spec": {"f:taints": {}}}
    fields = [
        {"time": "2026-11-23T10:00:00Z", "fieldsV1": {"f:metadata": {}}},
        {"time": "2026-11-23T10:05:00Z", "fieldsV1": written},
    ]
    taken = {
        "metadata": {"labels": {label: value}, "managedFields": fields},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]},
    }
    found = notice_of(taken)
    assert found is not None
    assert found.takes_node
    assert found.deadline == datetime(2026, 11, 23, 10, 5, tzinfo=UTC) + timedelta(seconds=notice_s)


@pytest.mark.parametrize(
    ("labels", "more"),
    [
        ({"karpenter.sh/capacity-type": "on-demand"}, []),  # consolidated: nothing says how long it stays
        ({"karpenter.sh/capacity-type": "spot"}, ["ToBeDeletedByClusterAutoscaler"]),
        ({"karpenter.sh/capacity-type": "spot"}, ["node.kubernetes.io/out-of-service"]),
    ],
)
def test_a_node_that_may_go_at_any_moment_has_no_deadline(labels: dict[str, str], more: list[str]) -> None:
    keys = ["karpenter.sh/disrupted", *more]
    fields = [{"time": "2026-11-23T10:05:00Z", "fieldsV1": {"f:spec": {"f:taints": {}}}}]
    taken = {
        "metadata": {"labels": labels, "managedFields": fields},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]},
    }
    found = notice_of(taken)
    assert found is not None
    assert (found.takes_node, found.deadline) == (True, None)
