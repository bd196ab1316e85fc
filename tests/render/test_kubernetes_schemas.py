"""Rendered manifests hold to the schemas of three releases of Kubernetes, unknown fields refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from fleetctl.model.kubernetes_addition import KubernetesAddition, KubernetesAdditions
from fleetctl.operations.rendering import RenderTarget, render
from tests.render import fleets
from tests.render.test_in_cluster import CLUSTER, profile, rendered as in_cluster
from tests.sites import plugins_site

if TYPE_CHECKING:
    from collections.abc import Mapping

RELEASES = ("1.35", "1.36", "1.37")
# The custom resources of others, which their own CRDs judge (tests/kube/test_additions.py).
_CUSTOM = ("keda.sh", "inference.networking", "llm-d.ai", "monitoring.coreos.com")


def documents(files: Mapping[str, str]) -> list[dict[str, Any]]:
    found = [each for path, text in files.items() if path.endswith(".yaml") for each in yaml.safe_load_all(text)]
    return [each for each in found if each and not each["apiVersion"].startswith(_CUSTOM)]


@pytest.fixture(scope="module")
def rendered() -> list[dict[str, Any]]:
    every = KubernetesAdditions(kinds=frozenset(KubernetesAddition), image="tests/fleetctl:1")
    files = render(plugins_site(), *fleets.one_of_each(), target=RenderTarget.KUBERNETES, additions=every)
    manifests = {path: text for path, text in files.items() if path.startswith("kubernetes/")}
    on_claim = in_cluster(profile(), replace(CLUSTER, is_state_on_claim=True))
    return [*documents(manifests), *yaml.safe_load_all(in_cluster(profile())), *yaml.safe_load_all(on_claim)]


@pytest.mark.parametrize("release", RELEASES)
def test_every_manifest_is_valid_and_strictly_so(release: str, rendered: list[dict[str, Any]]) -> None:
    kinds = {each["kind"] for each in rendered}
    assert kinds >= {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount", "PriorityClass"}
    assert kinds >= {"ClusterRole", "Role", "RoleBinding", "PersistentVolumeClaim", "ConfigMap"}
    for each in rendered:
        kubernetes_validate.validate(each, release, strict=True)


@pytest.mark.parametrize("release", RELEASES)
def test_a_field_that_no_release_knows_is_refused(release: str, rendered: list[dict[str, Any]]) -> None:
    (first, *_) = [each for each in rendered if each["kind"] == "Deployment"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**first, "spec": {**first["spec"], "replica": 3}}, release, strict=True)
