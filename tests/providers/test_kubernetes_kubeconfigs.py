"""What is wrong with a kubeconfig is said in a sentence: what, where, and what to do; without a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client import Configuration
from kubernetes.config import incluster_config

from fleetctl.errors import CredentialsError
from fleetctl_kubernetes import kubeconfigs
from fleetctl_kubernetes.connection import ClusterConnection
from fleetctl_kubernetes.settings import ClusterSettings

if TYPE_CHECKING:
    from pathlib import Path


def kubeconfig(**changes: object) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "llm"}}],
        **changes,
    }  # fmt: skip


def by_exec(**program: object) -> str:
    api = "client.authentication.k8s.io/v1"
    return json.dumps(kubeconfig(users=[{"name": "u", "user": {"exec": {"apiVersion": api, **program}}}]))


def in_context(**context: str) -> str:
    return json.dumps(kubeconfig(contexts=[{"name": "here", "context": context}]))


def refused(path: str) -> CredentialsError:
    with pytest.raises(CredentialsError) as raised:
        ClusterConnection(ClusterSettings(kubeconfig=path)).client()
    return raised.value


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("a: [b\n  c: {", ":2:4 is no YAML: did not find expected ',' or ']'", "mend the file"),
        ("\x00\x01", "is no YAML", "mend the file"),
        ("hello", "is no kubeconfig: it is a str", "mend the file"),
        (json.dumps(kubeconfig(clusters=3)), "its `clusters` is a int", "mend the file"),
        (json.dumps(kubeconfig(users=[{"user": {}}])), "number 1 of its `users` has no name", "mend the file"),
        ("{}", "has no context, and this is no pod", "name a kubeconfig"),
        (json.dumps(kubeconfig(**{"current-context": "gone"})), "has no context gone", "use-context NAME"),
        (json.dumps(kubeconfig(**{"current-context": ""})), "has no current context", "use-context NAME"),
        (in_context(cluster="gone", user="u"), "context here names cluster gone", "its clusters: c"),
        (in_context(cluster="c", user="gone"), "context here names user gone", "its users: u"),
        (json.dumps(kubeconfig(clusters=[{"name": "c"}])), "cluster c of", "mend it"),
        (
            json.dumps(kubeconfig(users=[{"name": "u", "user": {"tokenFile": "/absent/token"}}])),
            "No such file or directory: '/absent/token'", "kubectl config view",
        ),
        (by_exec(command="no-such-program", args=["get-token"]), "`no-such-program get-token`, which failed", "install it"),
        (by_exec(command="absent", installHint="brew install it"), "user u of the kubeconfig", "brew install it"),
        (by_exec(command="sh", args=["-c", "echo log in first >&2; exit 3"]), "returned 3. log in first", "log in with it"),
        (by_exec(command="echo", args=["{}"]), "missing key", "see that this works: echo {}"),
    ],
)  # fmt: skip
def test_it_is_said_what_is_wrong_with_a_kubeconfig(text: str, message: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    error = refused(str(path))
    assert message in error.message
    assert hint in error.hint
    assert error.message.startswith("user u") or str(path) in error.message or "context here" in error.message


@pytest.mark.parametrize("namespace", ["", "serving"])
def test_a_kubeconfig_that_is_not_there_is_named(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(CredentialsError, match=r"there is no kubeconfig at .*/absent") as raised:
        ClusterConnection(replace(ClusterSettings.of_environment(), namespace=namespace)).client()
    assert "KUBECONFIG" in raised.value.hint


@pytest.mark.parametrize("namespace", ["", "serving"])
def test_in_a_pod_its_own_account_is_worked_by_whatever_namespace_is_named(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("token", "of-the-pod"), ("ca.crt", "any"), ("namespace", "own")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(kubeconfigs, "_OWN_NAMESPACE", tmp_path / "namespace")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = Configuration()
    found = kubeconfigs.configure(
        configuration, ClusterSettings(kubeconfig=str(tmp_path / "absent"), namespace=namespace)
    )
    assert found == (namespace or "own")
    assert configuration.host == "https://10.0.0.1:443"
    assert list(configuration.api_key.values()) == ["bearer of-the-pod"]


def test_who_has_a_token_from_a_program_works_by_it(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-a-program"},
    }  # fmt: skip
    path = tmp_path / "config"
    path.write_text(by_exec(command="echo", args=[json.dumps(credential)], interactiveMode="Never"))
    configuration = Configuration()
    assert kubeconfigs.configure(configuration, ClusterSettings(kubeconfig=str(path))) == "llm"
    assert list(configuration.api_key.values()) == ["Bearer from-a-program"]


def test_an_unreadable_one_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path} cannot be read: Is a directory" in refused(str(tmp_path)).message


def test_several_are_read_as_one_and_an_absent_one_is_passed_over(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(json.dumps({"current-context": "here"}))
    second.write_text(json.dumps(kubeconfig(**{"current-context": "other"})))
    connection = ClusterConnection(ClusterSettings(kubeconfig=f"{tmp_path}/absent:{first}:{second}"))
    assert connection.namespace == "llm"
    assert connection.target().url == "http://127.0.0.1:1"
