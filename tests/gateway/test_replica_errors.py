"""Engines spell errors each in its own way; clients meet one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.gateway.replica_errors import shaped_error, status_in_stream
from fleetctl.gateway.wire import error_object

if TYPE_CHECKING:
    from tests.gateway.rig import GatewayRig
    from tests.gateway.scripted import Seen, Wire

SPELLINGS = {
    "vllm": (400, {"error": {"message": "no", "type": "BadRequestError", "param": "stop", "code": 400}}),
    "llama.cpp": (400, {"error": {"code": 400, "message": "no", "type": "invalid_request_error"}}),
    "sglang": (400, {"object": "error", "message": "no", "type": "BadRequestError", "param": None, "code": 400}),
    "tgi": (422, {"error": "no", "error_type": "validation"}),
    "fastapi": (400, {"detail": "no"}),
    "a text": (415, "no"),
}


@pytest.mark.parametrize("engine", SPELLINGS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engines_refusal_has_the_one_shape(rig: GatewayRig, engine: str, stream: bool) -> None:
    status, error = SPELLINGS[engine]

    async def refuses(seen: Seen, wire: Wire) -> None:
        del seen
        body = error.encode() if isinstance(error, str) else json.dumps(error).encode()
        head = b"HTTP/1.1 %d X\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        await wire.raw(head + body)

    await rig.add("r1", refuses)
    answer = await rig.post(stream=stream)
    param = "stop" if engine == "vllm" else None
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "error": {"message": "no", "type": "invalid_request_error", "param": param, "code": "bad_request"}
    }


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds this limit.",
        "request (10017 tokens) exceeds the available context size (2048 tokens), try increasing it",
        "Input validation error: `inputs` must have less than 2047 tokens. Given: 5001",
        "Requested token count exceeds the model's maximum context length of 2048 tokens.",
        "The input (5001 tokens) is longer than the model's context length (2048 tokens).",
    ],
)
def test_a_prompt_that_an_engine_finds_too_long_has_openais_code(message: str) -> None:
    error = shaped_error(400, {"error": {"message": message, "param": "input_tokens", "code": 400}})
    assert error == error_object(message, kind="invalid_request_error", code="context_length_exceeded", param=None)


@pytest.mark.parametrize(
    "body", [b"", b"<html>oh</html>", b'{"error":', b"[" * 9000, b"\xff\xfe", b"7", b'{"error":{}}']
)
async def test_what_no_engine_says_is_an_error_of_that_shape_too(rig: GatewayRig, body: bytes) -> None:
    async def refuses(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.raw(b"HTTP/1.1 404 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    await rig.add("r1", refuses)
    answer = await rig.post()
    assert answer.status == 404
    error = answer.json["error"]
    assert {key: type(value) for key, value in error.items()} == {
        "message": str, "type": str, "param": type(None), "code": str
    }  # fmt: skip
    assert error["message"]


@pytest.mark.parametrize(
    ("inner", "status"),
    [
        ({"message": "Input validation error: x", "http_status_code": 422}, 400),
        ({"message": "Model is overloaded", "http_status_code": 422}, 429),
        ({"message": "the shard failed", "http_status_code": 422}, 500),
        ({"message": "m", "code": 503}, 503),
        ({"message": "m", "code": "422"}, 400),
        ("a text", 500),
    ],
)
def test_an_error_event_stands_for_a_status(inner: Any, status: int) -> None:
    assert status_in_stream(inner) == status


@pytest.mark.parametrize("status", [400, 404, 405, 413, 431, 500, 502, 503, 504, 599])
def test_a_code_is_a_text_whatever_the_status(status: int) -> None:
    for error in (error_object("m", kind="k", code=status), shaped_error(status, {"message": "m", "code": status})):
        found = error["error"]
        assert isinstance(found, dict)
        assert isinstance(found["code"], str)
        assert not found["code"].isdigit()
