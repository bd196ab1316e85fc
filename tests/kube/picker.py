"""The real endpoint picker of the Gateway API's inference extension, and what a proxy before it does with a request.

A proxy speaks Envoy's protocol for external processors to the picker (ext_proc, gRPC over HTTP/2 without TLS): it hands over
the request, is kept waiting as long as the picker holds it, and sends it to the address that the answer names.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import yaml
from kubernetes import client

from tests.kube.assets import client_program, definition_file
from tests.kube.karpenter import define
from tests.kube.processes import running
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.kube.cluster import TestCluster

_CRDS = ("inference.networking.k8s.io_inferencepools", "inference.networking.x-k8s.io_inferenceobjectives")
_CONFIG = "default-plugins.yaml"  # the file in the rendered ConfigMap that the picker reads
_METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING = 0, 1, 3, 4, 6  # RFC 9113, section 6
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_PICKED = re.compile(rb"x-gateway-destination-endpoint.{1,4}?((?:\d+\.){3}\d+:\d+)", re.DOTALL)
_WAITS_S = 90.0


@dataclass(frozen=True)
class Picker:
    """One that runs."""

    calls: int  # its port for proxies
    metrics: int

    def scrape_job(self) -> dict[str, Any]:
        """Return what its chart's ServiceMonitor has Prometheus scrape, each second so that a test need not wait."""
        return {
            "job_name": "picker",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "static_configs": [{"targets": [f"127.0.0.1:{self.metrics}"]}],
        }

    def send(self, body: Mapping[str, Any]) -> httpx.Response:
        """Send a request by way of the picker, however long that holds it."""
        data = json.dumps(body).encode()
        address = self._picked(data)
        headers = {"Content-Type": "application/json"}
        return httpx.post(f"http://{address}/v1/chat/completions", content=data, headers=headers, timeout=_WAITS_S)

    def _picked(self, body: bytes) -> str:
        """Return the address that the picker gives for a request."""
        names = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}
        head = _field(1, b"".join(_field(1, _field(1, key) + _field(3, value)) for key, value in names.items()))
        messages = (
            _field(2, head),
            _field(4, _field(1, body) + b"\x10\x01"),
        )  # request_headers, request_body and its end
        with socket.create_connection(("127.0.0.1", self.calls), timeout=_WAITS_S) as connection:
            connection.sendall(
                _PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, _END_HEADERS, 1, _call_headers())
            )
            connection.sendall(b"".join(_frame(_DATA, 0, 1, _message(each)) for each in messages))
            answer = b""
            for kind, flags, payload in _frames(connection):
                if kind in {_SETTINGS, _PING} and not flags & _ACK:
                    connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
                if kind == _DATA:
                    answer += payload
                    if found := _PICKED.search(answer):
                        return found[1].decode()
                if kind == _RESET or (kind in {_DATA, _HEADERS} and flags & _END_STREAM):
                    break
        raise AssertionError(f"the picker gave no address: {answer!r}")


@contextmanager
def running_picker(
    cluster: TestCluster, namespace: str, documents: list[dict[str, Any]], directory: Path
) -> Iterator[Picker]:
    """Have a picker at work for the one InferencePool among rendered documents, as the rendered ConfigMap says."""
    program = client_program("epp")
    for name in _CRDS:
        define(cluster, yaml.safe_load(definition_file(f"{name}.yaml").read_text()))
    (pool,) = [each for each in documents if each["kind"] == "InferencePool"]
    (config,) = [each["data"][_CONFIG] for each in documents if each["kind"] == "ConfigMap"]
    (directory / _CONFIG).write_text(config)
    group, version = pool["apiVersion"].split("/")
    client.CustomObjectsApi(cluster.api).create_namespaced_custom_object(
        group, version, namespace, "inferencepools", pool
    )
    name = pool["metadata"]["name"]
    calls, health, metrics = (free_port() for _ in range(3))
    argv = (
        "--pool-name", name, "--pool-namespace", namespace, "--grpc-port", str(calls), "--grpc-health-port", str(health),
        "--metrics-port", str(metrics), "--metrics-endpoint-auth=false", "--secure-serving=false", "--tracing=false",
        "--enable-pprof=false", "-v=1", "--zap-encoder=json", "--config-file", str(directory / _CONFIG),
    )  # fmt: skip
    env = {
        "PATH": os.environ["PATH"], "KUBECONFIG": str(cluster.kubeconfig), "NAMESPACE": namespace, "POD_NAME": f"{name}-epp-0-0",
    }  # fmt: skip
    log = directory / "picker.log"
    with running(program, *argv, env=env, log=log) as process:
        until(lambda: process.poll() is not None or _listens(calls), "the picker is ready")
        assert process.poll() is None, log.read_text()[-2000:]
        yield Picker(calls, metrics)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def _call_headers() -> bytes:
    """Return the headers of the call as HPACK literals that nobody indexes (RFC 7541, section 6.2.2)."""
    named = {
        ":method": "POST", ":scheme": "http", ":path": _METHOD, ":authority": "picker",
        "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    return b"".join(
        b"\x00" + bytes((len(key),)) + key.encode() + bytes((len(value),)) + value.encode()
        for key, value in named.items()
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _frames(connection: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Yield frames until the other side ends."""
    with connection.makefile("rb") as read:
        while head := read.read(9):
            yield head[3], head[4], read.read(int.from_bytes(head[:3], "big"))


def _message(body: bytes) -> bytes:
    return b"\x00" + struct.pack(">I", len(body)) + body  # gRPC's, not compressed


def _field(number: int, value: bytes | str) -> bytes:
    """Return a field of bytes as protocol buffers have it."""
    data = value.encode() if isinstance(value, str) else value
    length, rest = b"", len(data)
    while rest > 0x7F:
        length += bytes((rest & 0x7F | 0x80,))
        rest >>= 7
    return bytes((number << 3 | 2,)) + length + bytes((rest,)) + data
