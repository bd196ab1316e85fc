"""What the gateways' pods are given where clients are served by TLS."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.catalogue.kubernetes_parts import service_spec
from fleetctl.model.tls import TlsSpec
from fleetctl_kubernetes.gateway_objects import GatewayObjects

PLAIN = GatewayObjects(
    fleet="chat", secret="chat-fleetctl", labels={"a": "b"}, controller={"c": "d"}, port=8443, control_port=9470  # noqa: S106  # its name
)  # fmt: skip
SECURE = replace(PLAIN, tls_secret="gateway-tls")  # noqa: S106  # its name


def test_a_gateway_of_tls_has_its_certificate_mounted_where_it_looks_for_it() -> None:
    pod = SECURE.deployment("image", replicas=2, annotations={})["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = (each["secret"] for each in pod["volumes"] if each["name"] == "tls")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "tls")
    assert (volume["secretName"], mount["readOnly"]) == ("gateway-tls", True)
    files = TlsSpec(secret="gateway-tls").files  # noqa: S106  # its name
    assert [f"{mount['mountPath']}/{item['path']}" for item in volume["items"]] == [files.certificate, files.key]
    assert container["command"][-2:] == ["--tls-directory", mount["mountPath"]]
    # Probes go to the control port, which a controller calls with a token.
    assert {container[name]["httpGet"]["port"] for name in ("readinessProbe", "livenessProbe")} == {"control"}


def test_a_gateway_without_has_nothing_of_it() -> None:
    assert "tls" not in str(PLAIN.deployment("image", replicas=2, annotations={}))
    assert service_spec({}, port=80)["ports"][0] == {"name": "http", "port": 80, "targetPort": "http"}
    assert service_spec({}, port=443, is_tls=True)["ports"][0]["appProtocol"] == "https"
