"""What of a pod's specification a container is started with: its words, its environment, its probes."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from tests.kube.api import Api, Object

_LEADER = "LWS_LEADER_ADDRESS"
_RESOLVED_WITHIN_S = 60.0
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


async def environment_of(api: Api, pod: Object, container: Object, address: str) -> dict[str, str]:
    """Return a container's variables, those of fields, secrets and config maps looked up."""
    found: dict[str, str] = {}
    for entry in container.get("env", []):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            found[entry["name"]] = _field(pod, source["fieldRef"]["fieldPath"], address)
        elif "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            secret = await api.get(f"{_home(pod)}/secrets/{reference['name']}")
            if secret is None:
                raise LookupError(f'secret "{reference["name"]}" not found')
            found[entry["name"]] = base64.b64decode(secret["data"][reference["key"]]).decode()
        else:
            found[entry["name"]] = expanded(entry.get("value", ""), found)
    if _LEADER in found:
        found[_LEADER] = await _resolved(api, pod, found[_LEADER], address)
    return found


async def _resolved(api: Api, pod: Object, name: str, address: str) -> str:
    """Return a pod's address by its name behind a headless service, as the cluster's DNS would, which is not run here."""
    first = name.partition(".")[0]
    if first == pod["metadata"]["name"]:
        return address
    with suppress(TimeoutError):
        async with asyncio.timeout(_RESOLVED_WITHIN_S):
            while True:
                found = await api.get(f"{_home(pod)}/pods/{first}")
                if found is not None and (known := found.get("status", {}).get("podIP")):
                    return str(known)
                await SYSTEM_CLOCK.sleep(0.2)
    raise LookupError(f"{name} does not resolve")


def expanded(text: str, variables: dict[str, str]) -> str:
    """Replace $(NAME) as Kubernetes does: an unknown one stays, $$ is a dollar."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def words_of(container: Object, variables: dict[str, str]) -> list[str]:
    return [expanded(word, variables) for word in (*container.get("command", ()), *container.get("args", ()))]


async def passes(probe: Object, container: Object, address: str) -> bool:
    """Whether a probe's check succeeds now; one over an exec is not played."""
    limit_s = probe.get("timeoutSeconds", 1)
    try:
        async with asyncio.timeout(limit_s):
            if "httpGet" in probe:
                return await _answers(probe["httpGet"], container, address)
            check = probe["tcpSocket"]
            _, writer = await asyncio.open_connection(check.get("host", address), port_of(check["port"], container))
            writer.close()
            return True
    except (OSError, aiohttp.ClientError, TimeoutError):
        return False


def port_of(named: int | str, container: Object) -> int:
    if isinstance(named, int):
        return named
    return next(int(each["containerPort"]) for each in container.get("ports", []) if each.get("name") == named)


async def _answers(check: Object, container: Object, address: str) -> bool:
    url = f"http://{check.get('host', address)}:{port_of(check['port'], container)}{check.get('path', '/')}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return 200 <= response.status < 400


def _field(pod: Object, path: str, address: str) -> str:
    if path in ("status.podIP", "status.podIPs"):
        return address
    found: object = pod
    for part in re.findall(r"[^.\[\]']+(?:/[^\]']+)?", path):
        found = found[part] if isinstance(found, dict) else ""
    return str(found)


def _home(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}"


def base_environment(home: str) -> dict[str, str]:
    """Return what every container has: where programs are found, and a home of its own."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": programs, "HOME": home, "LANG": "C.UTF-8"}
