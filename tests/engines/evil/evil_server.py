"""An engine that is healthy until it is told to be evil, and then does to each request what the request names.

    python -m evil_server HOST PORT

EVIL_HOME is a directory: evil once it holds `go`; what was done is appended to `done`; MUCH bytes stand for "without end".
"""

from __future__ import annotations

import gzip
import itertools
import os
import re
import socketserver
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

HOME = Path(os.environ["EVIL_HOME"])
MUCH = int(os.environ.get("EVIL_MUCH", str(64 * 1024 * 1024)))
# What moves a cursor, renames a window, hides, forges a line, turns text around: C0, C1, DEL, NUL, bidi, separators.
POISON = "\x1b[2J\x1b]0;pwned\x07\x9b31m\x85\x08\x7f\x00\rforged line\u202eevil\u2028\u2066"
RAW = POISON.encode()
OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"content-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
SSE = OK + b"content-type: text/event-stream\r\n" + CHUNKED
PIECE = 64 * 1024
LONG = b"x" * PIECE
DRIP_S = 1.0
DRIPS = 20
INTERNAL = os.environ.get("EVIL_INTERNAL", "127.0.0.1:1")
FINE = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes) -> bytes:
    return chunk(b"data: " + data + b"\n\n")


def whole(body: bytes, *, status: bytes = b"200 OK", headers: bytes = JSON) -> bytes:
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, headers, len(body), body)


def endless(head: bytes, piece: bytes) -> Callable[[], Iterator[bytes]]:
    def play() -> Iterator[bytes]:
        yield head
        for _ in range(MUCH // len(piece)):
            yield piece

    return play


def once(*pieces: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter(pieces)


def dripping(head: bytes, piece: bytes) -> Callable[[], Iterator[bytes]]:
    def play() -> Iterator[bytes]:
        yield head
        for _ in range(DRIPS):
            threading.Event().wait(DRIP_S)
            yield piece

    return play


def numbers(text: str) -> bytes:
    names = ("acme_slots_busy", "acme_backlog", "acme_cache_fill_percent", "acme_tokens_read_total")
    return "".join(f"{name} {text}\n" for name in (*names, "acme_tokens_written_total")).encode()


def delta(text: bytes) -> bytes:
    return event(b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % text)


HUGE_USAGE = b'{"choices":[],"usage":{"prompt_tokens":1000000000000000000,"completion_tokens":1000000000000000000}}'
ESCAPED = b"\\u001b[2J\\u001b]0;pwned\\u0007\\u009b\\u0000\\r\\nforged"
BOMB = gzip.compress(b"0" * 50_000_000)
BAD = {"headers": b"x-evil: " + RAW.replace(b"\r", b"").replace(b"\x00", b"") + b"\r\n"}
HEADERS = b"".join(b"x-%d: %b\r\n" % (i, b"v" * 100) for i in range(500))

CHATS: dict[str, Callable[[], Iterator[bytes]]] = {
    "endless-headers": endless(OK, HEADERS),
    "endless-header": endless(OK + b"x: ", LONG),
    "endless-status": endless(b"HTTP/1.1 200 ", LONG),
    "endless-body": endless(SSE, chunk(LONG)),
    "endless-plain-body": endless(OK + JSON + CHUNKED, chunk(b'{"a":"' + LONG)),
    "endless-error": endless(b"HTTP/1.1 400 Bad\r\n" + CHUNKED, chunk(LONG)),
    "endless-chunk": endless(SSE + b"ffffffffffff\r\n", LONG),
    "endless-trailers": endless(SSE + b"0\r\n", HEADERS),
    "interim-flood": endless(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 1000),
    "poison-header": once(b"HTTP/1.1 200 OK\r\n" + BAD["headers"] + b"content-length: 2\r\n\r\n{}"),
    "poison-error": once(whole(b'{"error":{"message":"' + ESCAPED + b'"}}', status=b"500 Oops")),
    "poison-raw-error": once(whole(RAW, status=b"500 Oops", headers=b"content-type: text/plain\r\n")),
    "poison-refusal": once(whole(RAW, status=b"400 Bad", headers=b"content-type: text/plain\r\n")),
    "poison-reason": once(b"HTTP/1.1 500 " + RAW.replace(b"\r", b"") + b"\r\ncontent-length: 0\r\n\r\n"),
    "poison-event": once(SSE, delta(ESCAPED), event(b'{"error":{"message":"' + ESCAPED + b'","code":"' + ESCAPED + b'"}}')),
    "short-length": once(OK + JSON + b"content-length: 5\r\n\r\n" + FINE),
    "long-length": once(OK + JSON + b"content-length: 1000000\r\n\r\n" + FINE),
    "two-lengths": once(OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!"),
    "no-end-chunk": once(OK + JSON + CHUNKED + b"100\r\nshort"),
    "slow": dripping(OK, b"x-drip: 1\r\n"),
    "slow-body": dripping(SSE, b":"),
    "redirect": once(b"HTTP/1.1 307 No\r\nlocation: http://%b/latest/meta-data/\r\ncontent-length: 0\r\n\r\n" % INTERNAL.encode()),
    "gzip-bomb": once(OK + JSON + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(BOMB), BOMB),
    "http2": once(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
    "huge-usage": once(SSE, delta(b"hi"), event(HUGE_USAGE), event(b"[DONE]"), b"0\r\n\r\n"),
    "huge-whole-usage": once(whole(HUGE_USAGE)),
    "deep": once(whole(b"[" * 500_000)),
    "model-name": once(whole(b'{"model":"m\\nforged\\u001b[2J","choices":[]}')),
    "nothing": once(b""),
    "forged-headers": once(whole(FINE, headers=JSON + b"x-fleetctl-replica: r999\r\nx-fleetctl-degraded: forged\r\n")),
    "fine": once(whole(FINE)),
}  # fmt: skip

TEXT = b"content-type: text/plain\r\n"
PAGES: dict[str, Callable[[], Iterator[bytes]]] = {
    "fine": once(whole(numbers("1"), headers=TEXT)),
    "endless": endless(OK + TEXT + CHUNKED, chunk(numbers("1") * 200)),
    "series": endless(OK + TEXT + CHUNKED, chunk(b"".join(b'acme_slots_busy{e="%d"} 1\n' % n for n in range(4000)))),
    "many-series": lambda: iter([whole(b"".join(b'a_%d{x="1"} 1\n' % n for n in range(200_000)), headers=TEXT)]),
    "nan": once(whole(numbers("NaN"), headers=TEXT)),
    "negative": once(whole(numbers("-1e308"), headers=TEXT)),
    "huge": once(whole(numbers("1e308"), headers=TEXT)),
    "poison": once(whole(b"acme_slots_busy" + RAW + b" 1\n" + b'acme_backlog{a="' + RAW + b'"} ' + RAW, headers=TEXT)),
    "no-text": once(whole(b"\xff\xfe" * 1000, headers=TEXT)),
    "headers": endless(OK, HEADERS),
    "redirect": CHATS["redirect"],
    "gzip-bomb": CHATS["gzip-bomb"],
    "http2": CHATS["http2"],
    "drip": dripping(OK, b"x: 1\r\n"),
}
_pages = itertools.cycle(PAGES)
_health = itertools.cycle(
    ["fine"] * 3 + ["endless-headers"] + ["fine"] * 3 + ["poison-raw-error"] + ["fine"] * 3 + ["redirect"]
)


def done(what: str) -> None:
    with (HOME / "done").open("a") as file:
        file.write(what + "\n")


class Engine(socketserver.BaseRequestHandler):
    """Answers one connection, and closes it."""

    request: Any

    def handle(self) -> None:
        head, _, body = self.read()
        if not head:
            return
        sys.stderr.buffer.write(b"INFO asked " + RAW + b"\n")
        sys.stderr.flush()
        try:
            for piece in self.answer(head, body)():
                self.request.sendall(piece)
        except OSError:
            return  # the other side has had enough

    def read(self) -> tuple[bytes, bytes, bytes]:
        raw = b""
        while b"\r\n\r\n" not in raw:
            more = self.request.recv(PIECE)
            if not more:
                return b"", b"", b""
            raw += more
        head, _, body = raw.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        while length and len(body) < int(length[1]):
            body += self.request.recv(PIECE)
        return head, b"", body

    def answer(self, head: bytes, body: bytes) -> Callable[[], Iterator[bytes]]:
        is_evil = (HOME / "go").exists()
        if head.startswith(b"GET /live"):
            what = next(_health) if is_evil else "fine"
            return CHATS[what]
        if head.startswith(b"GET /stats"):
            what = next(_pages) if is_evil else "fine"
            if is_evil:
                done(f"page {what}")
            return PAGES[what]
        named = re.search(rb"evil:([a-z0-9-]+)", body)
        what = named[1].decode() if named else "fine"
        done(f"chat {what}")
        if what == "log-line":
            for _ in range(MUCH // PIECE):
                sys.stderr.buffer.write(LONG)
            sys.stderr.buffer.write(b"\n")
        if what == "die":
            sys.stderr.buffer.write(b"RuntimeError: died of " + RAW + b"\n")
            sys.stderr.flush()
            os._exit(3)
        return CHATS.get(what, CHATS["fine"])


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        connection.settimeout(60)
        return connection, peer


if __name__ == "__main__":
    sys.stderr.buffer.write(b"starting " + RAW + b"\n")
    sys.stderr.flush()
    with Server((sys.argv[1], int(sys.argv[2])), Engine) as server:
        server.serve_forever(poll_interval=0.1)
