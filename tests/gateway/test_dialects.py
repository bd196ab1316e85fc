"""The same request gets the same status and shape from every engine of a model, whichever lane it enters.

The engines are emulated, each in a process of its own, behind the routing table that a controller makes for such lanes.
tests/e2e/test_two_engines.py holds real ones to the same requests.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.controller.table import build_table
from fleetctl.model.decision import Memory
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.profile import LaneMatch, ModelSpec
from fleetctl.model.replica import ReplicaState
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from tests.emulator.engine_process import EngineProcess
from tests.engines.dialect_requests import DECIDED, REQUESTS, SEVERAL_STREAMED, chat, text
from tests.gateway.rig import GatewayRig, Response, read
from tests.render import fleets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FLAVOURS = ("vllm", "tgi", "sglang")
# What clients of OpenAI read, and of an error what they decide on; engines add keys of their own, and keys that are null.
READ = {
    "id", "object", "created", "model", "choices", "index", "message", "delta", "role", "content", "text", "finish_reason",
    "usage", "prompt_tokens", "completion_tokens", "total_tokens", "error", "type", "code",
}  # fmt: skip
# Which event tells the role, and whether it holds text as well, is each engine's own; clients join them.
OF_FIRST = {".id: str", ".choices[].delta.role: str", ".choices[].delta.content: str", ".choices[].finish_reason: str"}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Yield the ports of one emulated engine of each kind."""
    home = tmp_path_factory.mktemp("dialects")
    options = ("--served-model-name", "tiny", "--max-model-len", "2048", "--max-num-seqs", "4", "--speed", "40")
    started: dict[str, EngineProcess] = {}
    try:
        for flavour in FLAVOURS:
            started[flavour] = EngineProcess(home, *options, "--startup-s", "0", "--flavour", flavour)
        yield {flavour: engine.port for flavour, engine in started.items()}
    finally:
        for engine in started.values():
            engine.close()


@pytest.fixture
async def rig(ports: dict[str, int]) -> AsyncIterator[GatewayRig]:
    """Yield a gateway in front of them, a lane for each."""
    lanes = []
    for flavour in FLAVOURS:
        spec = replace(fleets.lane(flavour, "emulator", flavour), match=LaneMatch(), max_wait_s=20.0)
        lanes.append((spec, fleets.lane_plan(flavour, "emulator", served_name="tiny", max_model_len=2048)))
    profile, plan = fleets.fleet(*lanes)
    profile = replace(profile, model=ModelSpec(id=fleets.MODEL, served_name="tiny"))
    desired = Desired(
        fleet="rig", phase=DesiredPhase.UP, generation=1, profile=profile, plan=plan, created_at=samples.EPOCH, changed_at=samples.EPOCH
    )  # fmt: skip
    records = [
        samples.replica(
            f"r-{flavour}", lane=flavour, state=ReplicaState.READY, host="127.0.0.1", port=port, ready_at=samples.EPOCH
        )
        for flavour, port in ports.items()
    ]
    async with GatewayRig() as made:
        made.frontend.apply(build_table(desired, records, Memory(), engine_of=load_engine, key_hashes=(), version=1))
        yield made


async def answers(rig: GatewayRig, request: tuple[str, Any]) -> list[Response]:
    path, body = request
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def sent(lane: str) -> Response:
        headers = {"content-type": "application/json", "x-fleetctl-lane": lane}
        async with rig.http.post(rig.url + path, data=content, headers=headers) as response:
            return await read(response)

    return list(await asyncio.gather(*(sent(flavour) for flavour in FLAVOURS)))


async def test_a_request_gets_the_same_from_every_engine(rig: GatewayRig) -> None:
    different = {}
    for name, request in (REQUESTS | SEVERAL_STREAMED | DECIDED).items():
        seen = [shape_of(answer) for answer in await answers(rig, request)]
        if any(each != seen[0] for each in seen):
            different[name] = dict(zip(FLAVOURS, seen, strict=True))
    assert different == {}


@pytest.mark.parametrize(
    "spelling",
    [{"top_p": 1}, {"top_p": 1.0}, {"temperature": 0}, {"n": 1}, {"presence_penalty": 0}, {"logit_bias": {}}, {"stop": None}, {"stop": "zzzz"}],
    ids=str,
)  # fmt: skip
async def test_what_means_nothing_is_served_by_every_engine(rig: GatewayRig, spelling: dict[str, Any]) -> None:
    for request in (chat(**spelling), text(**spelling), chat(stream=True, **spelling)):
        assert [answer.status for answer in await answers(rig, request)] == [200, 200, 200], request


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (chat(n=2, temperature=1), "n"),
        (chat(logit_bias={"5": -100}), "logit_bias"),
        (chat(seed=-7), "seed"),
        (chat(presence_penalty=-2), "presence_penalty"),
        (text(prompt=[5, 6, 7]), "prompt"),
    ],
)
async def test_what_one_engine_lacks_is_refused_in_every_lane_by_its_name(
    rig: GatewayRig, request_: tuple[str, Any], param: str
) -> None:
    for answer in await answers(rig, request_):
        error = answer.json["error"]
        assert (answer.status, error["param"], error["code"]) == (400, param, "invalid_value")
        assert "lane tgi: tgi " in error["message"]


def shape_of(answer: Response) -> dict[str, Any]:
    """Return what a client reads of an answer: values where they are promised, else only what is there."""
    kind = answer.headers["content-type"].split(";")[0]
    own = sorted(
        name for name in answer.headers if name.startswith("x-fleetctl-") or name in ("x-request-id", "retry-after")
    )
    seen: dict[str, Any] = {"status": answer.status, "kind": kind, "headers": own}
    if kind != "text/event-stream":
        return seen | {"body": sorted(paths(answer.json))}
    assert answer.body.endswith(b"\n\n"), "its last event is not whole"
    assert all(line.startswith(b"data: ") for line in answer.body.split(b"\n\n")[:-1])
    assert answer.is_whole
    events = answer.events[:-1]
    ends = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    return seen | {
        "first": sorted(paths(events[0]) - OF_FIRST), "usage": [index - len(events) for index, event in enumerate(events) if event.get("usage")],
        "ends": ends, "objects": sorted({event["object"] for event in events}),
    }  # fmt: skip


def paths(value: object, at: str = "") -> set[str]:
    """Return where something stands that clients read, and is not null; of an error its type and the kind of its code."""
    if isinstance(value, dict):
        return set().union(*(paths(each, f"{at}.{key}") for key, each in value.items() if key in READ))
    if isinstance(value, list):
        return set().union(*(paths(each, f"{at}[]") for each in value))
    if at == ".error.type":
        return {f"{at}: {value!r}"}
    return set() if value is None else {f"{at}: {type(value).__name__}"}
