"""Waiting, refusing, degrading."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import ContextCap
from tests.gateway.rig import CHAT, GatewayRig, until
from tests.gateway.scripted import answers, rejects, rejects_in_stream

SLOW = answers(["a", "b", "c", "d", "e"], gap_s=0.06)


def chat(**changes: Any) -> GatewayRig:
    return GatewayRig(lanes=(replace(CHAT, **changes),))


async def test_requests_over_the_slot_limit_wait_their_turn(rig):
    replica = await rig.add("r1", SLOW, concurrency_max=1)
    found = await asyncio.gather(*(rig.post(stream=True) for _ in range(4)))
    assert [a.status for a in found] == [200] * 4
    assert max(s.connection for s in replica.seen) <= 2
    window = rig.window()
    assert window.queue_wait.max_s >= 0.5
    assert window.finished == 4


async def test_a_full_queue_refuses_with_a_reason_and_when_to_come_back():
    async with chat(queue_max=1) as rig:
        await rig.add("r1", SLOW, concurrency_max=1)
        found = await asyncio.gather(*(rig.post(stream=True) for _ in range(5)))
        assert sorted(a.status for a in found) == [200, 200, 429, 429, 429]
        refused = next(a for a in found if a.status == 429)
        assert refused.headers["x-fleetctl-reason"] == "queue-full"
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-fleetctl-lane"] == "chat"
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert refused.json["error"]["code"] == "queue-full"
        assert rig.window().shed == {"queue-full": 3}
        assert rig.window().breached == {"refused": 3}


async def test_who_waited_the_lanes_max_wait_is_refused_then():
    async with chat(max_wait_s=0.1) as rig:
        await rig.add("r1", answers(["x"] * 10, gap_s=0.1), concurrency_max=1)
        first = asyncio.create_task(rig.post(stream=True))
        await until(lambda: rig.replicas[0].seen)
        began_s = SYSTEM_CLOCK.monotonic_s()
        refused = await rig.post(stream=True)
        assert refused.status == 429
        assert refused.headers["x-fleetctl-reason"] == "max-wait"
        assert 0.09 < SYSTEM_CLOCK.monotonic_s() - began_s < 5.0
        assert (await first).is_whole


async def test_a_wait_known_to_be_too_long_is_refused_at_once():
    async with chat(max_wait_s=0.2) as rig:
        await rig.add("r1", answers(["x"] * 10, gap_s=0.1), concurrency_max=1)
        assert (await rig.post(stream=True)).is_whole  # Now a slot is known to be held for a second.
        first = asyncio.create_task(rig.post(stream=True))
        await until(lambda: len(rig.replicas[0].seen) == 2)
        refused = await rig.post(stream=True)
        assert refused.headers["x-fleetctl-reason"] == "predicted-wait"
        await first


async def test_a_lane_without_any_replica_is_503():
    async with chat(max_wait_s=0.05) as rig:
        rig.apply()
        refused = await rig.post()
        assert refused.status == 503
        assert refused.headers["x-fleetctl-reason"] == "no-replica"
        assert rig.window().breached == {"error": 1}


async def test_a_request_waits_for_the_first_replica_to_come(rig):
    rig.apply()
    waiting = asyncio.create_task(rig.post())
    await until(lambda: rig.frontend.snapshot(1).lanes[0].queued == 1)
    await rig.add("r1")
    assert (await waiting).status == 200


async def test_a_client_that_leaves_the_queue_is_never_dispatched(rig):
    replica = await rig.add("r1", SLOW, concurrency_max=1)
    first = asyncio.create_task(rig.post(stream=True))
    await until(lambda: replica.seen)
    waiting = asyncio.create_task(rig.post(stream=True, user="gone"))
    await until(lambda: rig.frontend.snapshot(1).lanes[0].queued == 1)
    waiting.cancel()
    await until(lambda: rig.frontend.snapshot(1).lanes[0].queued == 0)
    assert (await first).is_whole
    assert all(s.body.get("user") != "gone" for s in replica.seen)


@pytest.mark.parametrize("reject", [rejects(503), rejects(429), rejects_in_stream(503)])
async def test_a_refusing_replica_is_passed_over(rig, reject):
    await rig.add("full", reject)
    await rig.add("free")
    for _ in range(8):
        answer = await rig.post(stream=True)
        assert answer.status == 200
        assert answer.text == "Hello world"
        assert answer.headers["x-fleetctl-replica"] == "free"


@pytest.mark.parametrize("reject", [rejects(503), rejects_in_stream(503)])
async def test_when_all_replicas_refuse_it_is_429(rig, reject):
    await rig.add("r1", reject)
    await rig.add("r2", reject)
    answer = await rig.post(stream=True)
    assert answer.status == 429
    assert answer.headers["x-fleetctl-reason"] == "engines-busy"
    assert int(answer.headers["retry-after"]) >= 1
    assert [len(r.seen) for r in rig.replicas] == [1, 1]


async def test_a_paused_lane_holds_its_queue_until_resumed():
    async with chat(interruptible=True, step=LadderStep.PAUSE_BATCH) as rig:
        replica = await rig.add("r1")
        waiting = asyncio.create_task(rig.post())
        await until(lambda: rig.frontend.snapshot(1).lanes[0].queued == 1)
        await SYSTEM_CLOCK.sleep(0.1)
        assert not replica.seen
        rig.change_lane("chat", step=LadderStep.NORMAL)
        assert (await waiting).status == 200


async def test_capped_answers_say_so():
    async with chat(step=LadderStep.CAP_TOKENS, max_tokens_cap=64) as rig:
        replica = await rig.add("r1")
        capped = await rig.post(max_tokens=500)
        assert capped.headers["x-fleetctl-degraded"] == "max_tokens=64"
        short = await rig.post(max_tokens=10)
        assert "x-fleetctl-degraded" not in short.headers
        await rig.post()
        await rig.post(max_completion_tokens=900)
        assert [s.body.get("max_tokens") for s in replica.seen] == [64, 10, 64, None]
        assert replica.seen[3].body["max_completion_tokens"] == 64
        assert replica.seen[0].body["messages"] == [{"role": "user", "content": "Hi"}]


async def test_an_answer_is_not_cut_below_what_its_client_insists_on():
    async with chat(step=LadderStep.CAP_TOKENS, max_tokens_cap=64) as rig:
        replica = await rig.add("r1")
        cut = await rig.post(max_tokens=1500, min_tokens=200)
        assert cut.headers["x-fleetctl-degraded"] == "max_tokens=200"
        whole = await rig.post(max_tokens=200, min_tokens=200)
        assert "x-fleetctl-degraded" not in whole.headers
        assert [(s.body["min_tokens"], s.body["max_tokens"]) for s in replica.seen] == [(200, 200)] * 2


def capped(tokens: int, **changes: Any) -> GatewayRig:
    return chat(step=LadderStep.CAP_CONTEXT, context_tokens_cap=tokens, **changes)


def chat_of(*texts: str, system: str = "") -> list[dict[str, str]]:
    """Return a chat whose turns go back and forth, after what the model is told to be."""
    turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *turns] if system else turns


async def test_cap_context_refuses_prompts_over_its_cap_with_a_reason_of_its_own():
    async with capped(1000) as rig:
        replica = await rig.add("r1")
        refused = await rig.post(messages=chat_of("x" * 1_000_000))
        assert refused.status == 429
        assert refused.headers["x-fleetctl-reason"] == refused.json["error"]["code"] == "cap-context"
        assert "shorten it" in refused.json["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        answered = await rig.post(messages=chat_of("x" * 400))
        assert answered.status == 200
        assert "x-fleetctl-degraded" not in answered.headers
        assert len(replica.seen) == 1
        assert rig.window().shed == {"cap-context": 1}


async def test_cap_context_trims_a_chats_oldest_turns_where_the_profile_says_so():
    async with capped(1000, cap_context=ContextCap.TRIM) as rig:
        replica = await rig.add("r1")
        turns = ["first " * 400, "answer " * 400, "second " * 100, "answer", "last"]
        answered = await rig.post(messages=chat_of(*turns, system="Be brief."))
        assert answered.status == 200
        assert answered.headers["x-fleetctl-degraded"] == "context_messages_cut=2"
        assert replica.seen[0].body["messages"] == [
            {"role": "system", "content": "Be brief."}, *chat_of(*turns)[2:],
        ]  # fmt: skip
        whole = await rig.post(messages=chat_of("last", system="Be brief."))
        assert "x-fleetctl-degraded" not in whole.headers


async def test_cap_context_refuses_what_trimming_cannot_make_short_enough():
    async with capped(100, cap_context=ContextCap.TRIM) as rig:
        replica = await rig.add("r1")
        refused = await rig.post(messages=chat_of("short", "short", "last " * 1000))
        assert refused.headers["x-fleetctl-reason"] == "cap-context"
        assert replica.seen == []


async def test_spill_uses_the_idle_replicas_of_another_lane():
    lanes = (replace(CHAT, name="short", spill_to=("long",)), replace(CHAT, name="long", lends=False))
    async with GatewayRig(lanes=lanes) as rig:
        await rig.add("s1", SLOW, lane="short", concurrency_max=1)
        await rig.add("l1", SLOW, lane="long", concurrency_max=1)

        async def two() -> set[str]:
            header = {"x-fleetctl-lane": "short"}
            found = await asyncio.gather(*(rig.post(headers=header, stream=True) for _ in range(2)))
            return {a.headers["x-fleetctl-replica"] for a in found}

        assert await two() == {"s1"}
        rig.change_lane("short", step=LadderStep.SPILL)
        assert await two() == {"s1", "l1"}


async def test_a_lane_that_lost_every_replica_spills_at_any_step():
    lanes = (replace(CHAT, name="short", spill_to=("long",)), replace(CHAT, name="long"))
    async with GatewayRig(lanes=lanes) as rig:
        await rig.add("l1", lane="long")
        answer = await rig.post(headers={"x-fleetctl-lane": "short"})
        assert answer.headers["x-fleetctl-replica"] == "l1"
        assert answer.headers["x-fleetctl-lane"] == "short"


async def test_shedding_refuses_what_would_wait_and_nothing_else():
    async with chat(step=LadderStep.SHED) as rig:
        await rig.add("r1", SLOW, concurrency_max=1)
        found = await asyncio.gather(*(rig.post(stream=True) for _ in range(3)))
        assert sorted(a.status for a in found) == [200, 429, 429]
        assert {a.headers.get("x-fleetctl-reason") for a in found} == {None, "shed"}


async def test_an_open_breaker_refuses_all_but_a_probe():
    async with chat(step=LadderStep.BREAKER) as rig:
        await rig.add("r1")
        statuses = [(await rig.post()).status for _ in range(6)]
        assert statuses.count(200) == 1
        refused = await rig.post()
        assert refused.headers["x-fleetctl-reason"] == "breaker"
        assert refused.headers["retry-after"]
