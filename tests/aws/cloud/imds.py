"""The instance metadata service: of every instance its own, at 169.254.169.254 of its namespace."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from moto.ec2.models import ec2_backends

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.access import role_key
from tests.aws.cloud.account import ACCOUNT, LaunchRecord

if TYPE_CHECKING:
    from datetime import datetime


_CLONE_NEWNET = 0x40000000
_REQUEST_S = 5.0
LOOPBACK_PORT = 1338  # as ec2-metadata-mock: 80 is root's
_TOKEN_HEADER, _TTL_HEADER = "x-aws-ec2-metadata-token", "x-aws-ec2-metadata-token-ttl-seconds"  # names


@dataclass
class Metadata:
    """What one instance is shown of itself; it grows as notices are given."""

    record: LaunchRecord
    address: str
    user_data: bytes
    action: dict[str, str] | None = None  # of spot/instance-action
    rebalance: dict[str, str] | None = None
    tokens: set[str] = field(default_factory=set)

    def page(self, path: str) -> str | None:
        """Return the content of a page below /latest/; None: there is none."""
        match path.strip("/").split("/"):
            case ["meta-data", "tags", "instance", *names]:
                return self._tags("/".join(names))
            case ["meta-data", "iam", *rest]:
                return self._role(rest)
            case parts:
                return {**self._plain(), **self._notices()}.get("/".join(parts))

    def _notices(self) -> dict[str, str]:
        found = {}
        if self.action:
            found["meta-data/spot/instance-action"] = json.dumps(self.action)
            found["meta-data/spot/termination-time"] = self.action["time"]
        if self.rebalance:
            found["meta-data/events/recommendations/rebalance"] = json.dumps(self.rebalance)
        return found

    def _plain(self) -> dict[str, str]:
        instance = self.record.instance
        found = {
            "instance-id": instance.id,
            "instance-type": instance.instance_type,
            "instance-life-cycle": instance.lifecycle or "on-demand",
            "ami-id": instance.image_id,
            "local-ipv4": self.address,
            "hostname": f"ip-{self.address.replace('.', '-')}.ec2.internal",
            "placement/availability-zone": instance.placement.zone,
            "placement/region": self.record.region,
        }
        pages = {f"meta-data/{name}": text for name, text in found.items()}
        pages["meta-data"] = "\n".join(sorted({name.partition("/")[0] for name in found}))
        pages["dynamic/instance-identity/document"] = json.dumps(self._identity())
        return pages | ({"user-data": self.user_data.decode()} if self.user_data else {})

    def _identity(self) -> dict[str, str]:
        instance = self.record.instance
        return {
            "accountId": ACCOUNT,
            "architecture": "x86_64",
            "availabilityZone": instance.placement.zone,
            "imageId": instance.image_id,
            "instanceId": instance.id,
            "instanceType": instance.instance_type,
            "privateIp": self.address,
            "region": self.record.region,
            "version": "2017-09-30",
        }

    def _tags(self, name: str) -> str | None:
        if self.record.instance.metadata_options.instance_metadata_tags != "enabled":
            return None
        tags = {each["key"]: each["value"] for each in self.record.instance.get_tags()}
        return tags.get(name) if name else "\n".join(sorted(tags))

    def profile(self) -> str:
        """Return the name of the instance's profile; empty: it has none."""
        associations = ec2_backends[ACCOUNT][self.record.region].iam_instance_profile_associations
        found = associations.get(self.record.instance.id)
        return "" if found is None else str(found.iam_instance_profile.name)

    def _role(self, rest: list[str]) -> str | None:
        name = self.profile()
        if not name:
            return None
        if rest == ["security-credentials"]:
            return name
        if rest != ["security-credentials", name]:
            return None
        until = SYSTEM_CLOCK.now() + timedelta(hours=6)
        keys = {"AccessKeyId": role_key(name), "SecretAccessKey": "of-the-role", "Token": "of-the-tests"}
        return json.dumps({"Code": "Success", "Type": "AWS-HMAC", **keys, "Expiration": instant(until)})


class MetadataService:
    """Serves every instance from one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._servers: dict[str, asyncio.Server] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True, name="metadata").start()

    def add(self, metadata: Metadata, *, namespace: str) -> None:
        """Begin to serve an instance's metadata, in its namespace if it has one."""
        self._wait(self._add(metadata, namespace))

    def remove(self, instance_id: str) -> None:
        self._wait(self._remove(instance_id))

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _add(self, metadata: Metadata, namespace: str) -> None:
        listening = _bound_in(namespace) if namespace else _bound(metadata.address, LOOPBACK_PORT)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(_REQUEST_S):
                    writer.write(_response(metadata, await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                return
            finally:
                writer.close()

        self._servers[metadata.record.instance.id] = await asyncio.start_server(serve, sock=listening)

    async def _remove(self, instance_id: str) -> None:
        server = self._servers.pop(instance_id, None)
        if server is not None:
            server.close()


def instant(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _response(metadata: Metadata, head: bytes) -> bytes:
    request, *lines = head.decode("latin-1").split("\r\n")
    method, target, *_ = [*request.split(" "), "", ""]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    path = unquote(target.partition("?")[0])
    if method == "PUT" and path == "/latest/api/token":
        if not headers.get(_TTL_HEADER, "").isdigit():
            return _message(HTTPStatus.BAD_REQUEST, "")
        token = os.urandom(24).hex()
        metadata.tokens.add(token)
        return _message(HTTPStatus.OK, token)
    # IMDSv2 alone: a launch that allows version 1 is not what is tested here.
    if headers.get(_TOKEN_HEADER) not in metadata.tokens:
        return _message(HTTPStatus.UNAUTHORIZED, "")
    content = metadata.page(path.removeprefix("/latest")) if method == "GET" else None
    return _message(HTTPStatus.NOT_FOUND, "") if content is None else _message(HTTPStatus.OK, content)


def _message(status: HTTPStatus, content: str) -> bytes:
    body = content.encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def _bound_in(namespace: str) -> socket.socket:
    """Return a socket of a namespace; this thread is in it for as long as that takes."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as own, Path(f"/run/netns/{namespace}").open() as other:
        if libc.setns(other.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
        try:
            return _bound("169.254.169.254", 80)
        finally:
            libc.setns(own.fileno(), _CLONE_NEWNET)


def _bound(address: str, port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((address, port))
    found.listen()
    return found
