"""The Acme engine itself: chats over HTTP, health and figures, all in its own words; knows nothing of fleetctl."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIECES = ("acme ", "makes ", "every", "thing ", "and ", "answers ", "all ", "chats.")
_counts: Counter[str] = Counter()
_lock = threading.Lock()
_idle = threading.Event()
_idle.set()


def count(**changes: int) -> None:
    """Add to the figures; what is being answered keeps the process alive."""
    with _lock:
        _counts.update(changes)
        if _counts["busy"]:
            _idle.clear()
        else:
            _idle.set()


class Chats(BaseHTTPRequestHandler):
    """Serves /live, /stats and /v1/chat/completions."""

    protocol_version = "HTTP/1.1"
    name = ""

    def do_GET(self) -> None:  # as http.server has it
        if self.path == "/live":
            self.send("text/plain", b"alive\n")
        elif self.path == "/stats":
            self.send("text/plain; version=0.0.4", page().encode())
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        request: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/chat/completions" or request["model"] != self.name:
            self.send_error(404)
            return
        pieces = PIECES[: request.get("max_tokens") or len(PIECES)]
        prompt_tokens = sum(len(message["content"].split()) for message in request["messages"])
        count(busy=1)
        try:
            self.stream(pieces) if request.get("stream") else self.whole(pieces, prompt_tokens)
        finally:
            count(busy=-1, read=prompt_tokens, written=len(pieces))

    def whole(self, pieces: tuple[str, ...], prompt_tokens: int) -> None:
        choice = {
            "index": 0, "message": {"role": "assistant", "content": "".join(pieces)}, "finish_reason": "stop",
        }  # fmt: skip
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(pieces)}
        body = {"id": "acme-1", "object": "chat.completion", "model": self.name, "choices": [choice], "usage": usage}
        self.send("application/json", json.dumps(body).encode())

    def stream(self, pieces: tuple[str, ...]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, piece in enumerate(pieces, 1):
            end = "stop" if number == len(pieces) else None
            choice = {"index": 0, "delta": {"content": piece}, "finish_reason": end}
            self.chunk(
                b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
            )
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as http.server has it
        """Say nothing of requests."""


def page() -> str:
    return (
        f"# TYPE acme_slots_busy gauge\nacme_slots_busy {_counts['busy']}\n"
        "# TYPE acme_backlog gauge\nacme_backlog 0\n"
        "# TYPE acme_cache_fill_percent gauge\nacme_cache_fill_percent 12.5\n"
        f"# TYPE acme_tokens_read_total counter\nacme_tokens_read_total {_counts['read']}\n"
        f"# TYPE acme_tokens_written_total counter\nacme_tokens_written_total {_counts['written']}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="acme_server")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--cache-format", default="brain16")
    parser.add_argument("--bind", required=True)
    parser.add_argument("--listen", type=int, required=True)
    given = parser.parse_args()
    Chats.name = given.name
    with ThreadingHTTPServer((given.bind, given.listen), Chats) as server:
        server.daemon_threads = True  # idle connections end with the process
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever(poll_interval=0.05)
        _idle.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
