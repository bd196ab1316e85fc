"""A context that does not exist is named, with those that do; without a cluster."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import CredentialsError
from fleetctl_kubernetes.connection import ClusterConnection, NoAnswerError
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import ClusterSettings
from tests.certificates import make_certificate

if TYPE_CHECKING:
    from pathlib import Path


def refused(kubeconfig: Path, context: str) -> CredentialsError:
    settings = ClusterSettings(kubeconfig=str(kubeconfig), context=context)
    with pytest.raises(CredentialsError) as raised:
        asyncio.run(KubernetesProvider(settings=settings).offerings())
    return raised.value


def test_a_context_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("staging", "prod")]
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    config = {"current-context": "prod", "clusters": [cluster], "users": [{"name": "u", "user": {}}]}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config, "contexts": contexts}))
    error = refused(kubeconfig, "stagin")
    assert "no context stagin" in error.message
    assert error.hint == "name one in provider.context, or FLEETCTL_KUBE_CONTEXT: prod, staging"


def test_a_kubeconfig_that_is_not_there_is_said_first(tmp_path: Path) -> None:
    assert "no cluster to work in" in refused(tmp_path / "absent", "prod").message


def test_a_server_that_the_kubeconfigs_authority_did_not_sign_is_said_to_be_no_answer(tmp_path: Path) -> None:
    mine, theirs = (make_certificate(tmp_path / name) for name in ("mine", "theirs"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            cluster = {
                "server": f"https://127.0.0.1:{server.server_address[1]}",
                "certificate-authority": str(mine.certificate),
            }
            config = {
                "current-context": "c",
                "users": [{"name": "u", "user": {}}],
                "clusters": [{"name": "k", "cluster": cluster}],
            }
            contexts = [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}]
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config, "contexts": contexts}))
            connection = ClusterConnection(ClusterSettings(kubeconfig=str(kubeconfig)))
            with pytest.raises(NoAnswerError, match="CERTIFICATE_VERIFY_FAILED"):
                connection.call("CoreV1Api", "list_namespaced_pod", "n")
        finally:
            server.shutdown()
            thread.join()
