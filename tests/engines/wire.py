"""One request over a raw socket, and the shape of its answer: what there is, of which type, not what it says."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

ANSWER_S = 120.0
ANSWERS = Path(__file__).parent / "pages" / "vllm-0.32-answers.json"
# Of a refusal these are promised by value: clients decide on them.
PROMISED = (".error.type", ".error.param", ".error.code")


def exchange(port: int, request: bytes) -> bytes:
    """Send a request on a connection of its own; return all that comes until the engine closes it."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def shape(answer: bytes) -> dict[str, Any]:
    """Return an answer's status, content type, names of headers, and what is in its body, as JSON can write it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(_header(line) for line in lines)
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    kind = headers.get("content-type", "")
    seen = {"status": int(status.split()[1]), "kind": kind, "headers": sorted(headers)}
    if "allow" in headers:
        seen["allow"] = sorted(word.strip() for word in headers["allow"].split(","))
    return seen | _body(body, kind)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


def _joined(body: bytes) -> bytes:
    whole = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return whole
        whole, body = whole + body[:length], body[length + 2 :]


def _body(body: bytes, kind: str) -> dict[str, Any]:
    if kind.startswith("text/event-stream"):
        return {"events": _events(body.decode())}
    if kind.startswith("application/json") and body:
        return {"body": sorted(paths(json.loads(body)))}
    return {"text": bool(body)}


def _events(text: str) -> list[list[str]]:
    """Return the different shapes of a stream's events in the order of their first, and that it ended as it should."""
    events = text.split("\n\n")
    assert events.pop() == "", "its last event is not whole"
    assert all(event.startswith("data: ") for event in events), "a line that is none of an event"
    seen: list[list[str]] = []
    for event in events:
        each = ["[DONE]"] if event == "data: [DONE]" else sorted(paths(json.loads(event[6:])))
        if each not in seen:
            seen.append(each)
    return seen


def paths(value: object, at: str = "") -> set[str]:
    """Return where something stands, and its type; of a refusal, what is promised of it."""
    if isinstance(value, dict):
        return set().union(*(paths(each, f"{at}.{key}") for key, each in value.items())) or {f"{at}: {{}}"}
    if isinstance(value, list):
        return set().union(*(paths(each, f"{at}[]") for each in value)) or {f"{at}: []"}
    if at in PROMISED:
        return {f"{at}: {value!r}"}
    return {f"{at}: {'null' if value is None else type(value).__name__}"}


def record(shapes: dict[str, dict[str, Any]]) -> str:
    """Return named shapes as a file: each that occurs once, and which name has which."""
    different: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for name, each in shapes.items():
        if each not in different:
            different.append(each)
        numbers[name] = different.index(each)
    rows = ",\n".join(json.dumps(each) for each in different)
    return f'{{"shapes": [\n{rows}\n],\n"answers": {json.dumps(numbers, indent=0)}}}\n'


def recorded(text: str) -> dict[str, dict[str, Any]]:
    """Return the shapes of a file that `record` wrote, by name."""
    tree = json.loads(text)
    return {name: tree["shapes"][number] for name, number in tree["answers"].items()}
