"""A context that does not exist is named, with those that do; without a cluster."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import CredentialsError
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import ClusterSettings

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
