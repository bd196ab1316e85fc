"""Manifests of a fleet's own processes, and the profiles that no cluster could keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from fleetctl.errors import ConfigError
from fleetctl.model.profile import GatewaySpec, Profile
from fleetctl.model.tls import TlsSpec
from fleetctl.operations.rendering import InCluster, RenderTarget, render
from fleetctl.testing import samples
from tests.sites import plugins_site

CLUSTER = InCluster(written={"name": "chat", "note": "ü: $HOME"}, namespace="llm", image="registry.example/fleetctl:1")


SECRET_TLS = TlsSpec(secret="gateway-tls")  # noqa: S106  # its name


def profile(**changes: Any) -> Profile:
    gateway = GatewaySpec(host="0.0.0.0", port=8080, api_keys=("env:LLM_KEY",))  # noqa: S104  # a pod's own
    return replace(samples.profile("chat"), provider="kubernetes", gateway=gateway, **changes)


def rendered(of: Profile, cluster: InCluster | None = CLUSTER, engine: str = "") -> str:
    plan = replace(samples.plan(), fleet=of.name)
    files = render(plugins_site(), of, plan, target=RenderTarget.IN_CLUSTER, cluster=cluster, engine=engine)
    return files["in-cluster/fleetctl.yaml"]


def test_a_fleets_own_processes_are_one_pod_with_its_profile_rights_and_state() -> None:
    text = rendered(profile())
    objects = {each["kind"]: each for each in yaml.safe_load_all(text)}
    assert list(objects) == [
        "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment", "Service", "ClusterRole", "ClusterRoleBinding",
    ]  # fmt: skip
    assert yaml.safe_load(objects["ConfigMap"]["data"]["fleet.yaml"]) == CLUSTER.written
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    kept = [each for each in container["env"] if "secretKeyRef" in each.get("valueFrom", {})]
    assert [each["name"] for each in kept] == ["LLM_KEY"]
    assert {"name": "FLEETCTL_STATE", "value": "kubernetes://llm"} in container["env"]
    assert "Create the Secret chat-fleetctl-secrets there yourself, with LLM_KEY." in text
    assert rendered(profile()) == text


def test_a_gateway_of_tls_has_its_secret_mounted_and_is_probed_by_https() -> None:
    secure = replace(profile(), gateway=replace(profile().gateway, tls=SECRET_TLS))
    objects = {each["kind"]: each for each in yaml.safe_load_all(rendered(secure))}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "tls")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "tls")
    assert volume["secret"]["secretName"] == "gateway-tls"
    assert mount["readOnly"]
    assert SECRET_TLS.files.key == f"{mount['mountPath']}/{volume['secret']['items'][1]['path']}"
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert objects["Service"]["spec"]["ports"][0]["appProtocol"] == "https"
    assert "HTTPS" not in rendered(profile())


def test_a_state_on_a_claim_takes_no_rights_in_the_cluster_for_it() -> None:
    text = rendered(profile(), replace(CLUSTER, is_state_on_claim=True))
    objects = {each["kind"]: each for each in yaml.safe_load_all(text)}
    assert objects["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert "FLEETCTL_STATE" not in text
    assert "leases" not in str(objects["Role"]["rules"])
    assert "leases" in rendered(profile())


def test_no_two_fleets_have_one_cluster_role() -> None:
    def roles(namespace: str, name: str) -> set[str]:
        text = rendered(replace(profile(), name=name), replace(CLUSTER, namespace=namespace))
        kinds = ("ClusterRole", "ClusterRoleBinding")
        return {each["metadata"]["name"] for each in yaml.safe_load_all(text) if each["kind"] in kinds}

    assert roles("llm", "chat-a").isdisjoint(roles("llm-chat", "a"))


def test_another_profile_is_another_pod() -> None:
    def digest(text: str) -> str:
        found = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
        return str(found["spec"]["template"]["metadata"]["annotations"]["fleetctl.dev/profile"])

    changed = replace(CLUSTER, written={**CLUSTER.written, "more": 1})
    assert digest(rendered(profile())) != digest(rendered(profile(), changed))


@pytest.mark.parametrize(
    ("of", "cluster", "engine", "message"),
    [
        (replace(profile(), provider="local"), CLUSTER, "", "starts no pods"),
        (
            replace(profile(), gateway=replace(profile().gateway, tls=TlsSpec(certificate="/a.pem", key="/b.pem"))),
            CLUSTER,
            "",
            "certificate is a file of this machine",
        ),
        (
            replace(profile(), provider_settings={"context": "prod"}),
            CLUSTER,
            "",
            "provider.context is of the machine outside",
        ),
        (replace(profile(), provider_settings={"namespace": "other"}), CLUSTER, "", "rights are granted in llm alone"),
        (replace(profile(), gateway=GatewaySpec(host="127.0.0.1")), CLUSTER, "", "nothing outside its pod reaches it"),
        (profile(), replace(CLUSTER, image=""), "", "no image"),
        (replace(profile(), name="c" * 60), CLUSTER, "", "cannot name a Kubernetes object"),
        (profile(), CLUSTER, "vllm", "profile's own"),
        (profile(), None, "", "profile's own"),
    ],
)
def test_a_fleet_that_no_cluster_could_keep_is_refused(
    of: Profile, cluster: InCluster | None, engine: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        rendered(of, cluster, engine)
