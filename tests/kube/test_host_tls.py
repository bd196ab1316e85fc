"""Gateways as pods that serve by the certificate of a Secret."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from fleetctl.certificates import client_context, read_certificate
from tests.certificates import make_certificate
from tests.kube.placed_fleet import KEY, MODEL, PlacedFleet, placed

if TYPE_CHECKING:
    from fleetctl.model.tls import TlsFiles

__all__ = ["placed"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]


def _make_secret(placed: PlacedFleet, files: TlsFiles) -> None:
    data = {"tls.crt": Path(files.certificate).read_bytes(), "tls.key": Path(files.key).read_bytes()}
    body = {
        "metadata": {"name": "gateway-tls"},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
    }
    placed.cluster.core.create_namespaced_secret(placed.namespace, body)


def test_pods_serve_by_the_secrets_certificate_and_load_knows_it_through_a_port_forward(
    placed: PlacedFleet, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path)
    _make_secret(placed, files)
    before = placed.everything()
    placed.write_profile(("api_keys: [env:LLM_KEY]", "api_keys: [env:LLM_KEY], tls: {secret: gateway-tls}"))
    up = placed.laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=200)
    assert up.strip() == f"https://chat-fleetctl.{placed.namespace}.svc:{placed.port}/v1"
    (address,) = placed.endpoints()
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    with httpx.Client(verify=client_context(read_certificate(files.certificate).pem), trust_env=False) as http:
        found = http.post(
            f"https://{address}:{placed.port}/v1/chat/completions", json=body, timeout=30,
            headers={"Authorization": f"Bearer {KEY}"},
        )  # fmt: skip
    assert found.status_code == 200, found.text
    service = placed.cluster.core.read_namespaced_service("chat-fleetctl", placed.namespace)
    assert service.spec.ports[0].app_protocol == "https"
    load = placed.laptop.run("load", "chat", "--duration", "2s", "--rps", "3")
    assert load.code == 0, load.err
    placed.laptop.fleetctl("down", "chat", "--yes", timeout_s=120)
    assert placed.everything() == before, "the Secret is its owner's"
