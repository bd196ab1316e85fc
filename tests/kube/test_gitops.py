"""One plan gives the same objects as manifests, as a kustomize base and as a helm chart, to the programs that read them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.model.kubernetes_addition import NO_ADDITIONS, KubernetesAddition, KubernetesAdditions
from fleetctl.operations.rendering import RenderTarget, render, render_to
from tests.kube.gitops import documents, run
from tests.render import fleets
from tests.sites import plugins_site

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile

pytestmark = [pytest.mark.timeout(240)]
EVERY = KubernetesAdditions(kinds=frozenset(KubernetesAddition), image="tests/fleetctl:1")
chosen = pytest.mark.parametrize("additions", [NO_ADDITIONS, EVERY], ids=["alone", "with everything"])
BRACES = '{"chat_template": "{{ messages }} {% if $x %}"}'


@pytest.fixture(autouse=True)
def _only_shipped_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def braced() -> tuple[Profile, Plan]:
    """Return a fleet of which one lane has arguments that look like a template of helm's."""
    profile, plan = fleets.one_of_each()
    first, *others = plan.lanes
    first = replace(first, launch=replace(first.launch, extra_args=("--chat-template-kwargs", BRACES)))
    return profile, replace(plan, lanes=(first, *others))


def manifests(
    fleet: tuple[Profile, Plan], additions: KubernetesAdditions = NO_ADDITIONS
) -> dict[tuple[str, str, str], Any]:
    files = render(plugins_site(), *fleet, target=RenderTarget.KUBERNETES, additions=additions)
    return documents("".join(text for path, text in files.items() if path.startswith("kubernetes/")))


@chosen
def test_a_kustomize_base_is_the_manifests(additions: KubernetesAdditions, tmp_path: Path) -> None:
    render_to(plugins_site(), *braced(), tmp_path, target=RenderTarget.KUSTOMIZE, additions=additions)
    built = documents(run("kubectl", "kustomize", str(tmp_path / "kustomize/base"), home=tmp_path))
    assert built == manifests(braced(), additions)


def test_an_overlay_sets_namespace_image_and_replicas(tmp_path: Path) -> None:
    render_to(plugins_site(), *braced(), tmp_path, target=RenderTarget.KUSTOMIZE)
    overlay = tmp_path / "overlays/production"
    overlay.mkdir(parents=True)
    image = manifests(braced())["Deployment.apps", "", "support-chat-short"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    kustomization = {
        "resources": ["../../kustomize/base"],
        "namespace": "llm",
        "images": [{"name": image["image"].split(":")[0], "newTag": "mine"}],
        "replicas": [{"name": "support-chat-short-spot", "count": 7}],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    built = documents(run("kubectl", "kustomize", str(overlay), home=tmp_path))
    spec = built["Deployment.apps", "llm", "support-chat-short-spot"]["spec"]
    assert spec["replicas"] == 7
    assert spec["template"]["spec"]["containers"][0]["image"].endswith(":mine")
    assert {space for kind, space, _ in built if not kind.startswith("PriorityClass")} == {"llm"}


def test_an_overlay_selects_nodes_by_labels_of_its_own(tmp_path: Path) -> None:
    render_to(plugins_site(), *braced(), tmp_path, target=RenderTarget.KUSTOMIZE)
    overlay = tmp_path / "overlays/production"
    overlay.mkdir(parents=True)
    own = [{"matchExpressions": [{"key": "example.com/pool", "operator": "In", "values": ["h100"]}]}]
    at = "nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
    patch = [{"op": "replace", "path": f"/spec/template/spec/affinity/{at}", "value": own}]
    target = {"kind": "Deployment", "name": "support-chat-short"}
    kustomization = {
        "resources": ["../../kustomize/base"],
        "patches": [{"target": target, "patch": yaml.safe_dump(patch)}],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    built = documents(run("kubectl", "kustomize", str(overlay), home=tmp_path))
    before = manifests(braced())

    def affinity(found: dict[tuple[str, str, str], Any], name: str) -> Any:
        spec = found["Deployment.apps", "", name]["spec"]["template"]["spec"]
        return spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert affinity(built, "support-chat-short") == own
    assert affinity(before, "support-chat-short") != own
    assert affinity(built, "support-chat-long") == affinity(before, "support-chat-long")


@chosen
def test_a_chart_with_its_own_values_is_the_manifests(additions: KubernetesAdditions, tmp_path: Path) -> None:
    render_to(plugins_site(), *braced(), tmp_path, target=RenderTarget.HELM, additions=additions)
    chart = str(tmp_path / "helm/support-chat")
    run("helm", "lint", "--strict", chart, home=tmp_path)
    assert documents(run("helm", "template", "any", chart, home=tmp_path)) == manifests(braced(), additions)


def test_a_charts_values_set_namespace_image_and_replicas_of_a_lane(tmp_path: Path) -> None:
    render_to(plugins_site(), *braced(), tmp_path, target=RenderTarget.HELM)
    settings = ("namespace=llm", "lanes.short.image=mine/vllm:1", "lanes.short.replicas.spot=7")
    options = [word for each in settings for word in ("--set", each)]
    built = documents(run("helm", "template", "any", str(tmp_path / "helm/support-chat"), *options, home=tmp_path))
    spec = built["Deployment.apps", "llm", "support-chat-short-spot"]["spec"]
    assert spec["replicas"] == 7
    assert spec["template"]["spec"]["containers"][0]["image"] == "mine/vllm:1"
    long = built["Deployment.apps", "llm", "support-chat-long-spot"]["spec"]
    assert (long["replicas"], long["template"]["spec"]["containers"][0]["image"] == "mine/vllm:1") == (2, False)
    assert {space for kind, space, _ in built if not kind.startswith("PriorityClass")} == {"llm"}


def test_a_misspelt_value_of_a_chart_is_refused(tmp_path: Path) -> None:
    render_to(plugins_site(), *braced(), tmp_path, target=RenderTarget.HELM)
    with pytest.raises(AssertionError, match=r"(?i)additional propert"):
        run(
            "helm",
            "template",
            "any",
            str(tmp_path / "helm/support-chat"),
            "--set",
            "lanes.shrot.image=x",
            home=tmp_path,
        )
