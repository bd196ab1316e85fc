"""A real emulator process, and small ways to talk to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl_emulator.tokens import AnswerText

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL, GPU, NAME = "meta-llama/Llama-3.1-8B-Instruct", "L40S", "chat"
ANSWER = AnswerText("0")
PATIENCE_S = 20.0


class EngineProcess:
    """Starts `python -m fleetctl_emulator` on a free port of its own choice."""

    def __init__(self, home: Path, *arguments: str, waits: bool = True, **env: str) -> None:
        self.port = 0
        self._streams: list[Stream] = []
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "fleetctl_emulator", "--model", MODEL, "--gpu", GPU, "--port", "0",
                "--served-model-name", NAME, *arguments,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home), **env},
        )  # fmt: skip
        if waits:
            self.wait_ready()

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "ready on" in line, self.errors()
        self.port = int(line.rsplit(":", 1)[1])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def errors(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()

    def send_signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait_end(self) -> int:
        return self._process.wait(PATIENCE_S)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        if self.is_alive:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def get(self, path: str) -> tuple[int, str]:
        return self.send("GET", path)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, text = self.send("POST", path, raw, headers)
        return status, json.loads(text) if text.startswith(("{", "[")) else text

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def chat(self, *, content: str = "What is a lane?", **fields: Any) -> tuple[int, Any]:
        return self.post("/v1/chat/completions", chat_body(content, **fields))

    def stream(self, *, content: str = "What is a lane?", **fields: Any) -> Stream:
        return self.open_stream("/v1/chat/completions", chat_body(content, stream=True, **fields))

    def open_stream(self, path: str, body: dict[str, Any]) -> Stream:
        stream = Stream(self.port, path, body)
        self._streams.append(stream)
        return stream

    def fault(self, text: str) -> None:
        status, answer = self.post("/emulator/faults", {"fault": text})
        assert status == 200, answer

    def heal(self) -> None:
        assert self.send("DELETE", "/emulator/faults")[0] == 200

    def metric(self, line: str) -> float:
        """The value of the sample that begins with `line`; labels may follow it."""
        page = self.get("/metrics")[1]
        return sum(float(row.rsplit(" ", 1)[1]) for row in page.splitlines() if row.startswith(line))

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.get("/emulator/state")[1])
        return state


class Stream:
    """A stream read by hand, so that its end and its cuts can be seen."""

    def __init__(self, port: int, path: str, body: dict[str, Any]) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def event(self) -> str:
        """The next event's data; empty at the end."""
        while True:
            line = self.response.readline().decode(errors="replace")
            if not line:
                return ""
            if line.startswith("data:"):
                return line[5:].strip()

    def first_text(self) -> str:
        while not (text := text_of(self.event())):
            pass
        return text

    def rest(self) -> list[str]:
        """Every event to come, and "CUT" if the connection broke without a proper end."""
        try:
            raw, is_cut = self.response.read(), False
        except http.client.IncompleteRead as broken:
            raw, is_cut = broken.partial, True
        except ConnectionError:
            raw, is_cut = b"", True
        lines = raw.decode(errors="replace").splitlines()
        return [line[5:].strip() for line in lines if line.startswith("data:")] + (["CUT"] if is_cut else [])

    def close(self) -> None:
        # The response holds its own handle on the socket; both must go for the engine to see the end.
        self.response.close()
        self.connection.close()


def chat_body(content: str, **fields: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": content}], **fields}


def texts_of(events: list[str]) -> str:
    return "".join(text_of(event) for event in events)


def text_of(event: str) -> str:
    if not event.startswith("{"):
        return ""
    choices = json.loads(event).get("choices") or [{}]
    return choices[0].get("delta", {}).get("content") or choices[0].get("text") or ""


def emitted(tokens: int, *, start: int = 0) -> str:
    return ANSWER.tokens(start, start + tokens).decode()


def until(claim: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    end = SYSTEM_CLOCK.monotonic_s() + within_s
    while not claim():
        assert SYSTEM_CLOCK.monotonic_s() < end, f"not within {within_s} s: {what}"
        SYSTEM_CLOCK.sleep_blocking(0.02)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
