"""By model first, by lane second, at the public port: names, adapters, unknown ones, and what stands in."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import openai
import pytest

from fleetctl.model.gateway import RouteLane, RouteModel
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import LaneMatch
from fleetctl.model.request_trace import TraceQuery
from fleetctl.recordings.recorder import recorded
from tests.gateway.rig import CHAT, GatewayRig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LANES: tuple[RouteLane, ...] = (
    replace(CHAT, name="big-short", model="big", match=LaneMatch(uncached_prompt_tokens_max=100), max_model_len=4096),
    replace(CHAT, name="big-long", model="big", max_model_len=8192),
    replace(CHAT, name="small", model="small", max_model_len=2048),
)
MODELS = (
    RouteModel(name="big", root="org/big", aliases=("gpt-4o",), adapters={"legal": "/lora/legal"}, fallback="small"),
    RouteModel(name="small", root="org/small", aliases=("mini",)),
)


@asynccontextmanager
async def two_models(**options: Any) -> AsyncIterator[GatewayRig]:
    async with GatewayRig(lanes=LANES) as rig:
        rig.options |= {"models": MODELS} | options
        for lane in LANES:
            await rig.add(f"r-{lane.name}", lane=lane.name)
        yield rig


def sent(rig: GatewayRig, replica: str) -> list[str]:
    """Return what a replica was asked for, by the model of each body."""
    found = next(each for each in rig.replicas if each.id == replica)
    return [seen.body["model"] for seen in found.seen]


@pytest.mark.parametrize(
    ("named", "lane", "engine_sees"),
    [
        ("big", "big-short", "big"),
        ("gpt-4o", "big-short", "big"),
        ("org/big", "big-short", "big"),
        ("legal", "big-short", "legal"),
        ("small", "small", "small"),
        ("mini", "small", "small"),
        ("", "big-short", ""),
    ],
)
async def test_a_name_an_alias_an_adapter_and_an_id_lead_to_the_lanes_of_their_model(
    named: str, lane: str, engine_sees: str
) -> None:
    async with two_models() as rig:
        answer = await rig.post(model=named)
        assert (answer.status, answer.headers["x-fleetctl-lane"]) == (200, lane)
        assert answer.headers["x-fleetctl-model"] == lane.partition("-")[0]
        assert sent(rig, f"r-{lane}") == [engine_sees]


async def test_within_a_model_the_lane_is_chosen_as_ever() -> None:
    async with two_models() as rig:
        long = [{"role": "user", "content": "word " * 400}]
        assert (await rig.post(model="big", messages=long)).headers["x-fleetctl-lane"] == "big-long"
        assert (await rig.post(model="small", messages=long)).headers["x-fleetctl-lane"] == "small"
        too_long = await rig.post(model="small", messages=long, max_tokens=5000)
        assert too_long.status == 400
        assert "maximum context length is 2048 tokens" in too_long.json["error"]["message"]


async def test_an_unknown_model_is_404_in_openais_shape_whatever_engine_stands_behind() -> None:
    async with two_models() as rig:
        answer = await rig.post(model="smal")
        error = answer.json["error"]
        assert (answer.status, error["code"], error["param"], error["type"]) == (404, "model_not_found", "model", "invalid_request_error")  # fmt: skip
        assert "did you mean 'small'" in error["message"]
        assert answer.headers["x-fleetctl-reason"] == "unknown-model"
        assert (await rig.post(model=7)).status == 400
        async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="x", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "Hi"}])
        assert not any(replica.seen for replica in rig.replicas)


async def test_a_name_with_escapes_is_the_same_name() -> None:
    async with two_models() as rig:
        body = b'{"model": "gpt\\u002d4o", "messages": [{"role": "user", "content": "Hi"}]}'
        async with rig.http.post(rig.url + "/v1/chat/completions", data=body) as answer:
            assert (answer.status, answer.headers["x-fleetctl-lane"]) == (200, "big-short")


async def test_a_body_that_cannot_be_put_into_other_words_is_answered() -> None:
    async with two_models() as rig:
        body = b'{"model": "mini", "seed": 1e999, "messages": [{"role": "user", "content": "Hi"}]}'
        async with rig.http.post(rig.url + "/v1/chat/completions", data=body) as answer:
            assert answer.status == 400
            assert "not valid" in (await answer.json())["error"]["message"]


async def test_a_lane_that_is_named_decides_for_who_names_no_model_and_serves_no_other() -> None:
    async with two_models() as rig:
        answer = await rig.post(headers={"x-fleetctl-lane": "small"}, model=None)
        assert (answer.status, answer.headers["x-fleetctl-model"]) == (200, "small")
        answer = await rig.post(headers={"x-fleetctl-lane": "small"}, model="big")
        assert (answer.status, answer.json["error"]["code"]) == (400, "unknown-lane")
        assert "no lane of model big" in answer.json["error"]["message"]


async def test_what_is_remembered_and_recorded_of_a_request_has_its_adapter() -> None:
    async with two_models() as rig:
        for name, adapter in (("legal", "legal"), ("big", ""), ("gpt-4o", "")):
            answer = await rig.post(model=name)
            [trace] = rig.frontend.ended.find(TraceQuery(id=answer.headers["x-request-id"])).requests
            assert (trace.model, trace.adapter) == ("big", adapter)
            assert (recorded(trace).model, recorded(trace).adapter) == ("big", adapter)


async def test_every_name_is_listed_with_its_length_and_adapters_with_their_parent() -> None:
    async with two_models() as rig:
        listed = {each["id"]: each for each in (await rig.get("/v1/models")).json["data"]}
        assert list(listed) == ["big", "gpt-4o", "legal", "small", "mini"]
        assert (listed["big"]["max_model_len"], listed["big"]["lanes"]) == (8192, {"big-short": 4096, "big-long": 8192})
        assert (listed["small"]["max_model_len"], listed["small"]["root"], listed["small"]["parent"]) == (2048, "org/small", None)  # fmt: skip
        assert (listed["legal"]["root"], listed["legal"]["parent"]) == ("/lora/legal", "big")
        async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="x", max_retries=0) as client:
            assert (await client.models.retrieve("legal")).id == "legal"
            assert (await client.models.retrieve("org/small")).id == "small"  # its hub id, which requests may name too
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("nope")


async def test_another_model_stands_in_while_a_lane_refuses_for_load_and_the_answer_says_so() -> None:
    async with two_models() as rig:
        rig.change_lane("big-short", step=LadderStep.BREAKER)
        rig.change_lane("big-long", step=LadderStep.BREAKER)
        answers = [await rig.post(headers={"x-request-id": f"mine-{n}"}, model="gpt-4o") for n in range(3)]
        answer = answers[-1]  # the breaker lets a probe through
        assert (answer.status, answer.headers["x-fleetctl-lane"]) == (200, "small")
        assert (answer.headers["x-fleetctl-model"], answer.headers["x-fleetctl-fallback-for"]) == ("small", "big")
        assert set(sent(rig, "r-small")) == {"small"}
        found = rig.frontend.ended.find(TraceQuery(id="mine-2")).requests
        assert [(each.model, each.lane, each.refusal) for each in found] == [("big", "big-short", "breaker"), ("small", "small", "")]  # fmt: skip
        page = (await rig.get("/metrics")).body.decode()
        assert 'fleetctl_gateway_lane_model_info{fleet="rig",lane="big-long",model="big"} 1' in page
        assert 'fleetctl_gateway_model_fallbacks_total{fleet="rig",model="big",served_by="small"}' in page


async def test_another_model_stands_in_at_once_for_one_without_a_replica_whose_lane_still_counts_who_came() -> None:
    async with two_models() as rig:
        for replica in rig.replicas[:2]:
            replica.in_rotation = False
        rig.apply()
        answer = await rig.post(model="legal", stream=True)
        assert (answer.status, answer.headers["x-fleetctl-fallback-for"]) == (200, "big")
        assert answer.is_whole
        assert sent(rig, "r-small") == ["small"]
        assert rig.window("big-short").offered == 1
        for replica in rig.replicas[:2]:
            replica.in_rotation = True
        rig.apply()
        assert "x-fleetctl-fallback-for" not in (await rig.post(model="legal")).headers


async def test_what_a_client_is_refused_for_is_no_reason_for_another_model() -> None:
    async with two_models() as rig:
        answer = await rig.post(model="big", max_tokens=100_000)
        assert answer.status == 400
        assert not rig.frontend.models.stood_in


async def test_where_nothing_stands_in_the_refusal_is_the_clients() -> None:
    async with two_models() as rig:
        for replica in rig.replicas:
            replica.in_rotation = False
        rig.lanes = tuple(replace(lane, max_wait_s=0.05) for lane in rig.lanes)
        rig.apply()
        answer = await rig.post(model="big")
        assert (answer.status, answer.headers["x-fleetctl-lane"]) == (503, "small")


async def test_a_fleet_of_one_model_refuses_other_names_and_shows_no_header() -> None:
    async with GatewayRig() as rig:
        rig.options["models"] = (RouteModel(name="m", root="org/m", aliases=("chat",)),)
        await rig.add("r1")
        answer = await rig.post(model="m")
        assert (answer.status, "x-fleetctl-model" in answer.headers) == (200, False)
        assert (await rig.post(model="chat")).status == 200
        assert sent(rig, "r1") == ["m", "m"]
        assert (await rig.post(model="nope")).status == 404
        page = (await rig.get("/metrics")).body.decode()
        assert not any(name in page for name in ("model_requests_total", "lane_model_info"))


@pytest.mark.parametrize("is_only", [False, True])
async def test_what_is_cached_of_a_prompt_for_one_adapter_is_not_for_another(*, is_only: bool) -> None:
    big = replace(MODELS[0], adapters={"legal": "/lora/legal", "sql": "/lora/sql"}, fallback="")
    options = {"models": (big,) if is_only else (big, MODELS[1])}
    lanes = tuple(replace(lane, model="") for lane in LANES[:2]) if is_only else LANES
    async with GatewayRig(lanes=lanes) as rig:
        rig.options |= options
        await rig.add("r1", lane="big-long")
        prompt = [{"role": "user", "content": "word " * 600}]
        cached = []
        for number, name in enumerate(("legal", "legal", "sql", "big", "gpt-4o", "sql")):
            answer = await rig.post(headers={"x-request-id": f"r-{number}"}, model=name, messages=prompt)
            assert answer.status == 200
            (found,) = rig.frontend.ended.find(TraceQuery(id=f"r-{number}")).requests
            cached.append(found.cached_tokens > 0)
        assert cached == [False, True, False, False, True, True]
