"""Volumes of the tests' pods: directories, to which the paths in a container's words and variables are turned."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.kube.api import Api, Object

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_WITH_ACCOUNT = """\
run=$(readlink -f /var/run)
mount -t tmpfs tmpfs "$run" && mkdir -p "$TARGET" && mount --bind "$ACCOUNT" "$TARGET" && mount -o remount,ro "$run" || exit
"""
_READ_ONLY = 'for each in $DIRECTORIES; do mount --bind "$each" "$each"; done; mount -o remount,ro,bind / || exit\n'


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
        if "hostPath" in volume:  # the node is this machine
            found[mount["mountPath"]] = Path(volume["hostPath"]["path"])
            continue
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


def variables_of(api: Api, mounts: dict[str, Path]) -> dict[str, str]:
    """Return where the API server is, as kubelet tells it; where no mount may be made, what stands for an account's files."""
    if _ACCOUNT in mounts and not _may_unshare():
        return {"KUBECONFIG": str(mounts[_ACCOUNT] / "kubeconfig")}
    server = urlsplit(api.url)
    return {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}


def turned(text: str, mounts: dict[str, Path]) -> str:
    """Return a path with the mount it lies below replaced; any other text as it is."""
    for path in sorted(mounts, key=len, reverse=True):
        if path == _ACCOUNT and _may_unshare():
            continue  # it is there
        if text == path or text.startswith(f"{path}/"):
            return f"{mounts[path]}{text.removeprefix(path)}"
    return text


def with_root(container: Object, words: list[str], mounts: dict[str, Path]) -> list[str]:
    """Return the words that start a container where this machine lets us: its account's files at the path where the official
    client looks for them, and its root read-only where it says so.
    """
    is_read_only = container.get("securityContext", {}).get("readOnlyRootFilesystem", False)
    if not _may_unshare() or not (is_read_only or _ACCOUNT in mounts):
        return words
    script, variables = "", []
    if _ACCOUNT in mounts:
        script += _WITH_ACCOUNT
        variables += [f"ACCOUNT={mounts[_ACCOUNT]}", f"TARGET={_ACCOUNT}"]
    if is_read_only:
        script += _READ_ONLY
        variables += [f"DIRECTORIES={' '.join(str(each) for path, each in mounts.items() if path != _ACCOUNT)}"]
    unset = [word for each in variables for word in ("-u", each.partition("=")[0])]
    script += f'exec env {" ".join(unset)} "$@"'
    return ["unshare", "--mount", "--propagation", "private", "env", *variables, "sh", "-c", script, "sh", *words]


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
    _write_files(at, issued["status"]["token"], authority, namespace, api.url)


def _write_files(at: Path, token: str, authority: Path, namespace: str, url: str) -> None:
    for file, text in (("token", token), ("ca.crt", authority.read_text()), ("namespace", namespace)):
        (at / file).write_text(text)
    if _may_unshare():
        return
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [{"name": "pod", "user": {"token": token}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}],
    }
    (at / "kubeconfig").write_text(json.dumps(config))
