"""Stands between boto3 and an S3, and does to chosen requests what networks and busy services do."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_S = 0.1


class Fault(StrEnum):
    """What becomes of a request."""

    NONE = "none"
    CUT_BEFORE = "cut-before"  # the connection ends, and nothing has happened
    CUT_AFTER = "cut-after"  # it has happened, and nobody is told
    SLOW_DOWN = "slow-down"  # 503, as S3 throttles
    DENIED = "denied"  # 403, as where a right was taken away
    EXPIRED = "expired"  # 400, as where a session is over
    SKEWED = "skewed"  # 403, as where the caller's clock is off
    HANG = "hang"  # nothing is answered for as long as this lasts


_Response = tuple[int, list[tuple[str, str]], bytes]  # status, headers, content
_REFUSALS: dict[Fault, _Response] = {
    Fault.SLOW_DOWN: (503, [], b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"),
    Fault.EXPIRED: (
        400,
        [],
        b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
    ),
    Fault.SKEWED: (
        403,
        [],
        b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>",
    ),
    Fault.DENIED: (403, [], b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"),
}


class S3Proxy:
    """Passes requests on to `port`; `fault` decides by method and path."""

    def __init__(self, port: int, fault: Callable[[str, str], Fault]) -> None:
        self.faults: list[Fault] = []
        self.is_over = threading.Event()
        proxy = self

        class PassingOn(BaseHTTPRequestHandler):
            """One connection of a client."""

            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

            def pass_on(self) -> None:
                """Do to a request what is due to it."""
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                found = fault(self.command, self.path)
                proxy.faults.append(found)
                self.close_connection = True
                if found is Fault.HANG:
                    proxy.wait_for_end(fault, self.command, self.path)
                elif refusal := _REFUSALS.get(found):
                    self.answer(*refusal)
                elif found is not Fault.CUT_BEFORE:
                    answer = _passed_on(port, self.command, self.path, body, dict(self.headers.items()))
                    if found is not Fault.CUT_AFTER:
                        self.answer(*answer)

            def answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
                """Answer the client."""
                self.send_response(status)
                for name, value in _kept(headers):
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = pass_on  # noqa: N815  # http.server's names

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), PassingOn)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def wait_for_end(self, fault: Callable[[str, str], Fault], method: str, path: str) -> None:
        """Wait until such a request hangs no more, or the proxy ends."""
        while fault(method, path) is Fault.HANG and not self.is_over.wait(_LOOK_S):
            pass

    @contextmanager
    def running(self) -> Iterator[S3Proxy]:
        """Serve for a block."""
        self._thread.start()
        try:
            yield self
        finally:
            self.is_over.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(timeout=10)


def _passed_on(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> _Response:
    upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    kept = {name: value for name, value in headers.items() if name.lower() != "expect"}
    upstream.request(method, path, body=body, headers=kept)
    answer = upstream.getresponse()
    content = answer.read()
    upstream.close()
    return answer.status, answer.getheaders(), content


def _kept(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers that are not of the connection."""
    ours = ("content-length", "connection", "transfer-encoding", "date", "server")
    return [(name, value) for name, value in headers if name.lower() not in ours]
