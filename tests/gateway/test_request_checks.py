"""Where not all engines of a model check requests, the gateway does, for all of its lanes alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.gateway.request_checks import find_wrong
from fleetctl.model.gateway import RouteModel
from tests.gateway.rig import CHAT, GatewayRig

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
REFUSED = {
    "image_url": "lane a: llamacpp is started without --mmproj",
    "tools": "lane b: vllm is started without --x",
    "greedy_choices": "lane b: vllm draws",
}
LANES = (replace(CHAT, name="a"), replace(CHAT, name="b"))


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"temperature": -1}, "temperature", "from 0 to 2"),
        ({"top_p": 2}, "top_p", "from 0 to 1"),
        ({"temperature": "hot"}, "temperature", "a number"),
        ({"max_tokens": 1.5}, "max_tokens", "whole number"),
        ({"max_tokens": True}, "max_tokens", "a number"),
        ({"stop": ""}, "stop", "none of them empty"),
        ({"stop": 7}, "stop", "must be texts"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "`stream`: true"),
        ({"response_format": "json"}, "response_format", "a section"),
        ({"logit_bias": "none"}, "logit_bias", "a section"),
        ({"user": 7}, "user", "a text"),
        ({"tools": []}, "tools", "must not be empty"),
        ({"tool_choice": "auto"}, "tool_choice", "wants `tools`"),
        ({"messages": [{"content": "hi"}]}, "messages", "`role`"),
        ({"messages": [{"role": "user", "content": None}]}, "messages", "must have `content`"),
        ({"top_p": 0}, "top_p", "over 0"),
        ({"presence_penalty": 9}, "presence_penalty", "from -2 to 2"),
        ({"frequency_penalty": -2.5}, "frequency_penalty", "from -2 to 2"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_completion_tokens": -3}, "max_completion_tokens", "at least 1"),
        ({"stop": list("abcde")}, "stop", "5 sequences"),
        ({"messages": []}, "messages", "empty"),
        ({"messages": IMAGE}, "messages", "lane a: llamacpp is started without --mmproj"),
        ({"temperature": 2.5}, "temperature", "from 0 to 2"),
        ({"seed": 2**63}, "seed", "from -9.22337e+18"),
        ({"seed": "7"}, "seed", "a number"),
        ({"top_k": -2}, "top_k", "at least -1"),
        ({"top_k": 1.5}, "top_k", "whole number"),
        ({"min_p": -1}, "min_p", "from 0 to 1"),
        ({"min_tokens": -1}, "min_tokens", "at least 0"),
        ({"repetition_penalty": 0}, "repetition_penalty", "over 0"),
        ({"top_logprobs": 3}, "top_logprobs", "`logprobs`: true"),
        ({"parallel_tool_calls": "x"}, "parallel_tool_calls", "true or false"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "by their ids"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "from -100 to 100"),
        ({"response_format": {}}, "response_format", "one of text, json_object, json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "`schema`"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages", "`text`"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages", "list of parts"),
        ({"messages": [{"role": "user", "content": "hi", "name": 5}]}, "messages", "`name`"),
        ({"messages": [{"role": "assistant"}]}, "messages", "`tool_calls`"),
        ({"tools": [{}], "tool_choice": "none"}, "tools", "a `function` with a `name`"),
        ({"tools": "x", "tool_choice": "none"}, "tools", "a `function` with a `name`"),
        ({"n": 2, "temperature": 0}, "n", "lane b: vllm draws"),
        ({"tools": [TOOL]}, "tools", "lane b: vllm is started without --x"),
    ],
)
async def test_the_same_request_is_refused_in_every_lane_before_it_is_sent(
    body: dict[str, Any], param: str, says: str
) -> None:
    async with GatewayRig(lanes=LANES) as rig:
        rig.options["models"] = (RouteModel(name="m", root="org/m", refused=REFUSED),)
        for lane in ("a", "b"):
            await rig.add(f"r-{lane}", lane=lane)
        answers = [await rig.post(headers={"x-fleetctl-lane": lane}, **body) for lane in ("a", "b")]
        for answer in answers:
            error = answer.json["error"]
            assert (answer.status, error["param"], error["type"]) == (400, param, "invalid_request_error")
            assert says in error["message"]
            assert answer.headers["x-fleetctl-reason"] == "not-allowed"
        assert not any(replica.seen for replica in rig.replicas)


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 0, "top_p": 1, "presence_penalty": -2, "frequency_penalty": 2, "n": 1, "stop": list("abcd")},
        {"temperature": None, "top_p": None, "max_tokens": None, "stop": None, "tools": None, "tool_choice": None},
        {"tools": [TOOL], "tool_choice": "none"},
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": ""},
                {"role": "user", "content": "b"},
            ]
        },
        {
            "seed": -7,
            "logprobs": True,
            "top_logprobs": 20,
            "parallel_tool_calls": False,
            "logit_bias": {"5": -100},
            "temperature": 2,
        },
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                }
            ]
        },
    ],
)
async def test_what_is_allowed_is_sent(body: dict[str, Any]) -> None:
    async with GatewayRig() as rig:
        rig.options["models"] = (RouteModel(name="m", root="org/m", refused=REFUSED),)
        await rig.add("r1")
        assert (await rig.post(**body)).status == 200


async def test_where_all_engines_check_requests_the_gateway_leaves_it_to_them() -> None:
    async with GatewayRig() as rig:
        rig.options["models"] = (RouteModel(name="m", root="org/m"),)
        await rig.add("r1")
        assert (await rig.post(temperature=-1)).status == 200


def test_a_prompt_must_hold_something_and_scoring_one_needs_no_token() -> None:
    empty = find_wrong(b'{"prompt": ""}', {}, is_chat=False)
    assert empty is not None
    assert empty.param == "prompt"
    assert find_wrong(b'{"prompt": ["a", 5]}', {}, is_chat=False) is not None
    assert find_wrong(b'{"prompt": [[5, 6], [7]]}', {}, is_chat=False) is None
    assert find_wrong(b'{"prompt": "x", "max_tokens": 0, "echo": true}', {}, is_chat=False) is None
    assert find_wrong(b'{"prompt": "x", "max_tokens": 0}', {}, is_chat=False) is not None


def test_a_prompt_in_another_shape_is_none() -> None:
    for prompt in (b"5", b"null", b'["a", ""]', b"[[5], []]", b"{}"):
        found = find_wrong(b'{"prompt": %b}' % prompt, {}, is_chat=False)
        assert found is not None, prompt
        assert found.param == "prompt"
