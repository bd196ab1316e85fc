"""Rendered pods select the nodes that have the GPU which their lane is planned for, by any label that says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.kubernetes_nodes import (
    AMD_PARTITION,
    AMD_PRODUCT,
    GKE_ACCELERATOR,
    GPU_NAME,
    INSTANCE_TYPE,
    PRODUCT,
    SPOT_LABELS,
)
from fleetctl.catalogue.node_gpus import node_gpus
from fleetctl.operations.rendering import RenderTarget, render
from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import render_kubernetes
from fleetctl.testing import samples
from tests.render import fleets
from tests.sites import plugins_site

if TYPE_CHECKING:
    from pathlib import Path

GPU_LABELS = (PRODUCT, GKE_ACCELERATOR, GPU_NAME, INSTANCE_TYPE)
IS_WHOLE = {
    "nvidia.com/gpu.sharing-strategy",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-gpu-partition-size",
    "nvidia.com/gpu.slices.gi",
}
AMD = {"MI300X", "MI325X", "MI355X"}
ROCM = "Its image has to be a build for ROCm: name one in launch.image."


@pytest.fixture(autouse=True)
def _no_files_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def terms(text: str, deployment: str) -> list[dict[str, dict[str, Any]]]:
    """Return the alternatives of a Deployment's node affinity, each with its expressions by their keys."""
    (found,) = (
        each
        for each in yaml.safe_load_all(text)
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", deployment)
    )
    affinity = found["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    alternatives = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [{each["key"]: each for each in one["matchExpressions"]} for one in alternatives]


def one_lane(gpu: str, **changes: Any) -> str:
    plan = replace(fleets.lane_plan("short", "vllm"), gpu=gpu, **changes)
    return render_kubernetes(*fleets.fleet((fleets.lane("short", "vllm"), plan)), load_engine)["kubernetes/short.yaml"]


def test_each_label_of_the_gpu_is_an_alternative_in_each_term_of_the_market() -> None:
    text = one_lane("H100")
    on_demand = terms(text, "support-chat-short")
    assert [next(key for key in each if key in GPU_LABELS) for each in on_demand] == [*GPU_LABELS]
    assert all(each.keys() >= {*SPOT_LABELS} | IS_WHOLE for each in on_demand)
    spot = terms(text, "support-chat-short-spot")
    found = {
        (market, gpu) for each in spot for market in each.keys() & {*SPOT_LABELS} for gpu in each.keys() & {*GPU_LABELS}
    }
    assert found == {(market, gpu) for market in SPOT_LABELS for gpu in GPU_LABELS}
    assert len(spot) == len(found)
    assert all(each.keys() >= IS_WHOLE for each in spot)
    for each in (*on_demand, *spot):
        for key, values in node_gpus().labels_of("H100").items():
            assert key not in each or each[key] == {"key": key, "operator": "In", "values": [*values]}
    assert on_demand[0][PRODUCT]["values"] == ["NVIDIA-H100-80GB-HBM3"]
    assert {"p5.48xlarge", "Standard_ND96isr_H100_v5"} <= {*on_demand[3][INSTANCE_TYPE]["values"]}
    assert "# Its pods go to nodes with H100 alone, by any of the labels nvidia.com/gpu.product, " in text


@pytest.mark.parametrize("target", [RenderTarget.KUSTOMIZE, RenderTarget.HELM])
def test_a_base_and_a_chart_select_them_too(target: RenderTarget) -> None:
    files = render(plugins_site(), *fleets.one_of_each(), target=target)
    (text,) = (text for path, text in files.items() if path.endswith("/short.yaml"))
    assert "NVIDIA-H100-80GB-HBM3" in text
    assert "nvidia-h100-mega-80gb" in text


def test_a_gpu_that_no_label_is_known_of_is_not_selected_and_the_file_says_so() -> None:
    text = one_lane("Own")
    (only,) = terms(text, "support-chat-short")
    assert only.keys() == {*SPOT_LABELS} | IS_WHOLE
    assert (
        "# No label is known of nodes with Own: its pods go to any node with nvidia.com/gpu, whatever the plan says."
        in text
    )


def test_a_lane_on_an_amd_gpu_asks_for_it_by_its_own_device_plugins_name() -> None:
    text = one_lane("MI300X")
    on_demand = terms(text, "support-chat-short")
    assert [next(key for key in each if key in (AMD_PRODUCT, *GPU_LABELS)) for each in on_demand] == [
        AMD_PRODUCT,
        INSTANCE_TYPE,
    ]
    assert "AMD_Instinct_MI300X_OAM" in on_demand[0][AMD_PRODUCT]["values"]
    assert on_demand[1][INSTANCE_TYPE]["values"] == ["Standard_ND96isr_MI300X_v5"]
    for each in on_demand:
        assert each.keys() >= {*SPOT_LABELS, AMD_PARTITION}
        assert not each.keys() & IS_WHOLE
        assert "cpx_nps4" in each[AMD_PARTITION]["values"]
    (pod, *_) = (each["spec"]["template"]["spec"] for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
    assert pod["containers"][0]["resources"]["limits"].keys() == {"amd.com/gpu"}
    assert {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert "nvidia.com" not in text
    assert ROCM in " ".join(text.replace("#", " ").split())
    assert ROCM not in " ".join(one_lane("H100").replace("#", " ").split())


def test_an_image_that_the_profile_names_is_believed_to_be_for_its_gpu() -> None:
    spec = fleets.lane("short", "vllm")
    spec = replace(spec, launch=replace(spec.launch, image="rocm/vllm:mine"))
    plan = replace(fleets.lane_plan("short", "vllm"), gpu="MI300X")
    text = render_kubernetes(*fleets.fleet((spec, plan)), load_engine)["kubernetes/short.yaml"]
    assert "image: rocm/vllm:mine" in text
    assert "ROCm" not in text


def test_a_plan_for_a_cluster_has_that_clusters_own_product_too() -> None:
    def sold(product: str, gpu: str = "H100") -> Any:
        return samples.offering(provider="kubernetes", instance_type=f"2x{product}", gpu=gpu)

    (first, *_) = terms(one_lane("H100", offering=sold("NVIDIA-H100-SXM6")), "support-chat-short")
    assert first[PRODUCT]["values"] == ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-SXM6"]
    (only,) = terms(one_lane("Own", offering=sold("NVIDIA-Own", "Own")), "support-chat-short")
    assert only[PRODUCT]["values"] == ["NVIDIA-Own"]
    (first, *_) = terms(one_lane("H100", offering=sold("NVIDIA-L40S", "L40S")), "support-chat-short")
    assert first[PRODUCT]["values"] == ["NVIDIA-H100-80GB-HBM3"]


def test_a_users_own_file_adds_a_product_to_those_selected(tmp_path: Path) -> None:
    own = tmp_path / "config/fleetctl/profiles/node-gpus.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("products: {NVIDIA-H100-SXM6: H100}\n")
    assert terms(one_lane("H100"), "support-chat-short")[0][PRODUCT]["values"] == [
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA-H100-SXM6",
    ]


def test_every_gpu_of_the_catalogue_has_a_product_of_its_vendors_discovery() -> None:
    assert {name for name in load_catalogue().gpus if AMD_PRODUCT in node_gpus().labels_of(name)} == AMD
    assert {name for name in load_catalogue().gpus if PRODUCT not in node_gpus().labels_of(name)} == AMD
