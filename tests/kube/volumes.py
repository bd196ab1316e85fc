"""Volumes of the tests' pods: directories, to which the paths in a container's words and variables are turned."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.kube.api import Api, Object

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_READ_ONLY = 'for each in $DIRECTORIES; do mount --bind "$each" "$each"; done; mount -o remount,ro,bind /; exec "$@"'


async def mounted(api: Api, pod: Object, container: Object, directory: Path, cluster: Path) -> dict[str, Path]:
    """Return a directory for each path that a container mounts, filled as its volume says."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes", [])}
    home = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
    found: dict[str, Path] = {}
    for mount in container.get("volumeMounts", []):
        volume, at = volumes[mount["name"]], directory / "volumes" / mount["name"]
        if "persistentVolumeClaim" in volume:  # it outlives the pod
            claim = volume["persistentVolumeClaim"]["claimName"]
            at = cluster / "claims" / f"{pod['metadata']['namespace']}-{claim}"
        if mount["mountPath"] == _ACCOUNT:  # one path for every pod of an account, as it is inside of containers
            at = cluster / "accounts" / f"{pod['metadata']['namespace']}-{pod['spec']['serviceAccountName']}"
        at.mkdir(parents=True, exist_ok=True)
        await _fill(api, home, volume, at)
        if mount["mountPath"] == _ACCOUNT:
            await _write_account(api, pod, at, cluster / "ca.crt")
        found[mount["mountPath"]] = at
    return found


async def _fill(api: Api, home: str, volume: Object, at: Path) -> None:
    if "configMap" in volume:
        kept = await api.get(f"{home}/configmaps/{volume['configMap']['name']}")
        if kept is None:
            raise LookupError(f'configmap "{volume["configMap"]["name"]}" not found')
        for name, text in kept.get("data", {}).items():
            (at / name).write_text(text)
    if "secret" in volume:
        kept = await api.get(f"{home}/secrets/{volume['secret']['secretName']}")
        if kept is None:
            raise LookupError(f'secret "{volume["secret"]["secretName"]}" not found')
        for name, text in kept.get("data", {}).items():
            (at / name).write_bytes(base64.b64decode(text))


def variables_of(mounts: dict[str, Path]) -> dict[str, str]:
    """Return what stands for a service account's files, which the official client looks for at one path of the machine's."""
    return {"KUBECONFIG": str(mounts[_ACCOUNT] / "kubeconfig")} if _ACCOUNT in mounts else {}


def turned(text: str, mounts: dict[str, Path]) -> str:
    """Return a path with the mount it lies below replaced; any other text as it is."""
    for path in sorted(mounts, key=len, reverse=True):
        if text == path or text.startswith(f"{path}/"):
            return f"{mounts[path]}{text.removeprefix(path)}"
    return text


def with_root(container: Object, words: list[str], writable: Iterable[Path]) -> list[str]:
    """Return the words that start a container, its root read-only where it says so and this machine lets us."""
    if not container.get("securityContext", {}).get("readOnlyRootFilesystem") or not _may_unshare():
        return words
    directories = " ".join(str(each) for each in writable)
    return ["unshare", "--mount", "--propagation", "private", "env", f"DIRECTORIES={directories}",
            "sh", "-c", _READ_ONLY, "sh", *words]  # fmt: skip


@lru_cache
def _may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0  # noqa: S607  # whichever is first


async def _write_account(api: Api, pod: Object, at: Path, authority: Path) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    issued = await api.post(path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}})
    if issued is None or "status" not in issued or "token" not in issued["status"]:
        raise LookupError(f"no token for service account {name}")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": {"server": api.url, "certificate-authority": str(authority)}}],
        "users": [{"name": "pod", "user": {"token": issued["status"]["token"]}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}],
    }
    (at / "kubeconfig").write_text(json.dumps(config))
