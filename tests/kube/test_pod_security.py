"""What Pod Security refuses is said to be that, with what is to be done: of engines, and of a Deployment's pods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from kubernetes import client

from fleetctl.errors import CredentialsError
from fleetctl.model.node import Mount
from fleetctl.model.preflight import PlannedNodes, Verdict
from fleetctl.testing import samples
from fleetctl_kubernetes.connection import ClusterConnection
from fleetctl_kubernetes.pod_states import refusal
from tests.kube.cluster import GPU
from tests.kube.test_provider import Space, order, space
from tests.waiting import until

if TYPE_CHECKING:
    from fleetctl.errors import FleetctlError
    from fleetctl.model.preflight import Finding

__all__ = ["space"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
_LABEL = "pod-security.kubernetes.io/enforce"


def test_an_engine_that_pod_security_refuses_is_no_matter_of_credentials(space: Space) -> None:
    space.cluster.core.patch_namespace(space.name, {"metadata": {"labels": {_LABEL: "restricted"}}})

    async def refused() -> FleetctlError | None:
        provider = await space.prepared()
        (result,) = await provider.create((order("t-1"),), resolve_secrets=dict)
        return result.error

    error = asyncio.run(refused())
    assert error is not None
    assert not isinstance(error, CredentialsError)
    assert "violates PodSecurity" in error.message
    assert _LABEL in error.hint


def pods_found(space: Space, *mounts: Mount) -> Finding:
    """Return what a preflight says of the engines' pods."""
    offering = samples.offering(instance_type=f"1x{GPU}")
    planned = PlannedNodes(offering=offering, count=1, to_create=1, gpu_count=1, mounts=mounts)
    found = asyncio.run(space.provider().findings((planned,)))
    return {each.name: each for each in found}["pods"]


def test_a_preflight_says_that_pod_security_refuses_engines_by_what_they_mount_too(space: Space) -> None:
    mounts = (Mount(source="/models", target="/models", read_only=True),)
    for level, of_plain, of_mounts in (
        ("privileged", Verdict.OK, Verdict.OK),
        ("baseline", Verdict.OK, Verdict.FAIL),
        ("restricted", Verdict.FAIL, Verdict.FAIL),
    ):
        space.cluster.core.patch_namespace(space.name, {"metadata": {"labels": {_LABEL: level}}})
        assert (pods_found(space).verdict, pods_found(space, *mounts).verdict) == (of_plain, of_mounts), level
    refused = pods_found(space)
    assert refused.detail.startswith("the namespace refuses the engines': ")
    assert "violates PodSecurity" in refused.detail
    assert _LABEL in refused.hint
    assert space.cluster.names(space.name) == []  # nothing was made for it


def test_a_preflight_says_that_a_quota_has_no_room_and_no_more(space: Space) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    space.cluster.core.create_namespaced_resource_quota(space.name, quota)
    until(lambda: pods_found(space).verdict is Verdict.WARN, "the quota is in force")
    assert "exceeded quota" in pods_found(space).detail


def test_a_deployment_whose_pods_are_refused_says_why(space: Space) -> None:
    space.cluster.core.patch_namespace(space.name, {"metadata": {"labels": {_LABEL: "restricted"}}})
    labels = {"app": "refused"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "tests/i:1"}]}}
    deployment = {"metadata": {"name": "refused"}, "spec": {"selector": {"matchLabels": labels}, "template": pod}}
    client.AppsV1Api(space.cluster.api).create_namespaced_deployment(space.name, deployment)
    connection = ClusterConnection(space.settings)

    def why() -> str:
        found = refusal(connection.call("AppsV1Api", "read_namespaced_deployment", "refused", space.name))
        return f"{found.text} | {found.hint}" if found is not None else ""

    until(lambda: bool(why()), "it says so", within_s=30)
    assert why().startswith("no pod of Deployment refused is made: ")
    assert "violates PodSecurity" in why()
    assert _LABEL in why().partition("|")[2]
