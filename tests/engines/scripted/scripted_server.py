"""An engine that ends each request as its script says: python -m scripted_server HOST PORT, with the script in ENDINGS.

ENDINGS are names of `ANSWERS`, by commas; requests get them in turn. The warm-up of a new replica is always answered well.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from sys import argv
from typing import Any

LATE_S = 2.6  # beyond the lanes' promise of a first token
WAIT_S = 0.6  # within it, and long enough for a client to leave
SLOW_GAP_S = 0.8  # beyond their promise of a gap
STEP_S = 0.002
PAGE = "".join(
    f"{name} 0\n"
    for name in ("acme_slots_busy", "acme_backlog", "acme_cache_fill_percent", "acme_tokens_read_total", "acme_tokens_written_total")
)  # fmt: skip
_script = itertools.cycle(os.environ["ENDINGS"].split(","))
_turn = threading.Lock()


def chunk(content: str, finish: str | None = None) -> bytes:
    """Return one event of a stream."""
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


class Engine(BaseHTTPRequestHandler):
    """Serves /live, /stats and /v1/chat/completions."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a probe."""
        self.whole(200, PAGE.encode(), kind="text/plain")

    def do_POST(self) -> None:
        """Answer a chat as the script says."""
        request: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["messages"][0]["content"] == "warm up":
            self.reply()
            return
        with _turn:
            ending = next(_script)
        getattr(self, ending)()

    # Endings.

    def reply(self) -> None:
        """Answer whole."""
        choice = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 8, "completion_tokens": 1}
        self.whole(200, json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode())

    def good(self) -> None:
        """Stream ten tokens."""
        self.stream([STEP_S] * 10)

    def long(self) -> None:
        """Stream a hundred tokens without a slow gap."""
        self.stream([STEP_S] * 100)

    def uneven(self) -> None:
        """Stream twenty tokens of which two come late: a tenth of its gaps."""
        self.stream([STEP_S] * 9 + [SLOW_GAP_S] * 2 + [STEP_S] * 9)

    def late(self) -> None:
        """Have the first token come after the promise."""
        self.stream([LATE_S] + [STEP_S] * 5)

    def slowly(self) -> None:
        """Have the first token come within the promise, and late enough for who leaves."""
        self.stream([WAIT_S] + [STEP_S] * 5)

    def busy(self) -> None:
        """Refuse."""
        self.whole(429, b'{"error": {"message": "busy"}}')

    def cut(self) -> None:
        """Break the stream off."""
        self.begin()
        for _ in range(3):
            self.piece(chunk("word "))
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def empty(self) -> None:
        """End at once, well, and without a token."""
        self.begin()
        self.end_stream(chunk("", "stop"))

    def fail(self) -> None:
        """Report an error as the first event, under 200."""
        self.begin()
        self.end_stream(b'data: {"error": {"message": "out of memory", "code": 500}}\n\n')

    def fail_later(self) -> None:
        """Report one after three tokens."""
        self.begin()
        for _ in range(3):
            self.piece(chunk("word "))
        self.end_stream(b'data: {"error": {"message": "out of memory", "code": 500}}\n\n')

    def no_choice(self) -> None:
        """Answer 200 whole, with an answer to nobody."""
        self.whole(200, b'{"object": "chat.completion", "choices": []}')

    def whole_error(self) -> None:
        """Answer 200 whole, with an error in it."""
        self.whole(200, b'{"error": {"message": "out of memory", "code": 500}}')

    # Writing.

    def stream(self, waits_s: list[float]) -> None:
        """Stream a token after each of these waits."""
        self.begin()
        for number, wait_s in enumerate(waits_s, 1):
            threading.Event().wait(wait_s)
            self.piece(chunk("word ", "stop" if number == len(waits_s) else None))
        self.end_stream()

    def begin(self) -> None:
        """Write the head of a stream."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def piece(self, data: bytes) -> None:
        """Write a chunk of it."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def end_stream(self, last: bytes = b"") -> None:
        """Write its last event and its end."""
        for data in filter(None, (last, b"data: [DONE]\n\n")):
            self.piece(data)
        self.wfile.write(b"0\r\n\r\n")

    def whole(self, status: int, body: bytes, *, kind: str = "application/json") -> None:
        """Write a whole answer."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as http.server has it
        """Keep quiet."""


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as come."""

    request_queue_size = 128


if __name__ == "__main__":
    Server((argv[1], int(argv[2])), Engine).serve_forever()
