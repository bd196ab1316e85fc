"""The WSGI layer before moto: faults, the journal of calls, what moto does not answer, and the tests' own controls."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from moto.s3.models import s3_backends
from werkzeug.test import run_wsgi_app

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.access import AccessControl
from tests.aws.cloud.account import ACCOUNT, CloudAccount
from tests.aws.cloud.admin import AdminPages
from tests.aws.cloud.calls import AwsCall, call_of
from tests.aws.cloud.faults import FaultRules
from tests.aws.cloud.pricing import pricing_response
from tests.aws.cloud.quotas import quota_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.aws.cloud.faults import FaultRule

_BODY_BYTES_MAX = 16 * 2**20
_JOURNAL_MAX = 20_000
_HANG_S_MAX = 600.0
ADMIN = "/_cloud/"

# Status, headers and body of a response.
Response = tuple[str, list[tuple[str, str]], bytes]


class _CutError(ConnectionError):
    """The connection was reset on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One call that came in."""

    service: str
    action: str
    region: str
    parameters: dict[str, str]
    fault: str
    status: int  # 0: none was sent
    access_key: str = ""
    # What it had to be allowed, action and resource, and which of it was not; where its caller is held to policies.
    needed: tuple[tuple[str, str], ...] = ()
    denied: tuple[tuple[str, str], ...] = ()


@dataclass
class Frontend:
    """A WSGI application around moto's."""

    moto: Any
    account: CloudAccount
    faults: FaultRules
    admin: AdminPages
    outage: Callable[[float], None]  # stops listening for so many seconds
    commands: Callable[[AwsCall], dict[str, Any] | None] = lambda _: None  # what instances are told to run
    access: AccessControl = field(default_factory=AccessControl)
    journal: deque[JournalEntry] = field(default_factory=lambda: deque(maxlen=_JOURNAL_MAX))
    _rules: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = _body(environ)
        if environ.get("PATH_INFO", "").startswith(ADMIN):
            status, headers, content = self.admin.respond(environ, body)
        else:
            status, headers, content = self._call(environ, body)
        start_response(status, headers)
        return [content]

    def _call(self, environ: dict[str, Any], body: bytes) -> Response:
        call = call_of(environ, body)
        with self._rules:
            fault = self.faults.striking(call)
        status = 0
        with self.account.lock:
            needed = self.access.requests(call)
            denied = self.access.denied(call, needed)
        try:
            if denied:
                response = self.access.refusal(call, denied)
            else:
                response = self._struck(call, environ, body, fault) if fault else self._served(call, environ, body)
            status = int(response[0].split(" ", 1)[0])
            return response
        finally:
            kind = fault.kind if fault else ""
            entry = JournalEntry(
                service=call.service,
                action=call.action,
                region=call.region,
                parameters=call.parameters,
                fault=kind,
                status=status,
                access_key=call.access_key,
                needed=tuple((each.action, each.resource) for each in needed),
                denied=tuple((each.action, each.resource) for each in denied),
            )
            self.journal.append(entry)

    def _served(self, call: AwsCall, environ: dict[str, Any], body: bytes) -> Response:
        self.account.advance()
        own = quota_response(call, self.account.capacity) or pricing_response(call, self.account.capacity)
        own = own or self.commands(call)
        if own is not None:
            status = "400 Bad Request" if "__type" in own else "200 OK"
            return status, [("Content-Type", "application/x-amz-json-1.1")], json.dumps(own).encode()
        # A long poll waits without the lock; moto's queues have one of their own.
        lock = contextlib.nullcontext() if call.service == "sqs" else self.account.lock
        environ["wsgi.input"] = io.BytesIO(body)
        try:
            with lock:
                chunks, status, headers = run_wsgi_app(self.moto, environ, buffered=True)
        except Exception:  # noqa: BLE001  # whatever moto raises is an error of the service's, and the server lives on
            traceback.print_exc()
            kind, content = call.error("InternalError", f"moto failed: {sys.exc_info()[1]!r}")
            return "500 Internal Server Error", [("Content-Type", kind)], content
        return status, [*headers.items(), *_bucket_region(call)], b"".join(chunks)

    def _struck(self, call: AwsCall, environ: dict[str, Any], body: bytes, fault: FaultRule) -> Response:
        match fault.kind:
            case "error":
                kind, content = call.error(fault.code, fault.message)
                return f"{fault.status} Fault", [("Content-Type", kind)], content
            case "delay":
                SYSTEM_CLOCK.sleep_blocking(min(fault.seconds, _HANG_S_MAX))
                return self._served(call, environ, body)
            case "hang":
                SYSTEM_CLOCK.sleep_blocking(min(fault.seconds, _HANG_S_MAX))
            case "outage":
                self.outage(fault.seconds)
            case "kill-before":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill-after":
                self._served(call, environ, body)
                os.kill(os.getpid(), signal.SIGKILL)
            case "cut-after":
                self._served(call, environ, body)
            case "truncate":
                _send_half(environ, self._served(call, environ, body))
            case _:
                pass
        _reset(environ)
        raise _CutError(fault.kind)

    def calls(self) -> list[dict[str, Any]]:
        """Return the journal as JSON takes it."""
        return [asdict(each) for each in list(self.journal)]


def _body(environ: dict[str, Any]) -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > _BODY_BYTES_MAX:
        raise ValueError(f"a body of {length} bytes: {_BODY_BYTES_MAX} at most")
    if length:
        return bytes(environ["wsgi.input"].read(length))
    chunked = environ.get("wsgi.input_terminated") and environ.get("HTTP_TRANSFER_ENCODING") == "chunked"
    return bytes(environ["wsgi.input"].read(_BODY_BYTES_MAX)) if chunked else b""


def _send_half(environ: dict[str, Any], response: Response) -> None:
    status, headers, content = response
    kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
    head = "".join(f"{name}: {value}\r\n" for name, value in [*kept, ("Content-Length", str(len(content)))])
    environ["werkzeug.socket"].sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + content[: len(content) // 2])


def _reset(environ: dict[str, Any]) -> None:
    """Have the client see the connection reset: nothing of the kernel's is sent on."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RD)
    connection.close()


def _bucket_region(call: AwsCall) -> list[tuple[str, str]]:
    """Return what S3 says of a bucket beside a listing, and moto does not."""
    buckets = s3_backends[ACCOUNT]["aws"].buckets if (call.service, call.action) == ("s3", "ListObjectsV2") else {}
    bucket = buckets.get(call.parameters["Bucket"]) if buckets else None
    return [("x-amz-bucket-region", bucket.region_name)] if bucket is not None else []
