"""Replicas that fail, and what the client notices of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.dispatch.limits import DispatchLimits
from tests.gateway.rig import CHAT, LIMITS, GatewayRig, until
from tests.gateway.scripted import Scripted, answers, delta, dies, hangs, rejects
from tests.ports import free_port


async def test_a_client_that_leaves_a_stream_stops_its_replica(rig):
    replica = await rig.add("r1", answers(["x"] * 500, gap_s=0.05))
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.window().output_tokens > 2)
    response.cancel()
    began_s = SYSTEM_CLOCK.monotonic_s()
    await until(lambda: replica.broken_off)
    assert SYSTEM_CLOCK.monotonic_s() - began_s < 5.0  # milliseconds on an idle machine
    await until(lambda: rig.frontend.snapshot(1).replicas[0].in_flight == 0)
    assert rig.window().finished == 0


async def test_a_client_that_leaves_before_a_whole_answer_stops_its_replica(rig):
    replica = await rig.add("r1", hangs)
    response = asyncio.create_task(rig.post())
    await until(lambda: replica.seen)
    response.cancel()
    began_s = SYSTEM_CLOCK.monotonic_s()
    await until(lambda: replica.broken_off)
    assert SYSTEM_CLOCK.monotonic_s() - began_s < 5.0  # milliseconds on an idle machine


@pytest.mark.parametrize("stream", [True, False])
async def test_a_replica_that_cannot_be_reached_costs_nothing(rig, stream):
    rig.replicas.append(Scripted("gone", port=free_port()))
    await rig.add("r1")
    for _ in range(6):
        answer = await rig.post(stream=stream)
        assert answer.status == 200
        assert answer.headers["x-fleetctl-replica"] == "r1"
    gone = next(r for r in rig.frontend.snapshot(1).replicas if r.id == "gone")
    assert gone.failures >= 1


@pytest.mark.parametrize("stream", [True, False])
async def test_closed_before_any_byte_is_retried_once_elsewhere(rig, stream):
    await rig.add("bad", dies)
    await rig.add("good")
    for _ in range(3):
        answer = await rig.post(stream=stream)
        assert answer.status == 200
        assert answer.headers["x-fleetctl-replica"] == "good"


async def test_a_poison_request_visits_three_replicas_and_no_more(rig):
    for i in range(5):
        await rig.add(f"r{i}", dies)
    answer = await rig.post(stream=True)
    assert answer.status == 502
    assert answer.json["error"]["type"] == "server_error"
    assert sum(len(r.seen) for r in rig.replicas) == 3
    assert rig.window().breached == {"error": 1}


async def test_a_500_of_a_draining_engine_is_retried_and_a_lasting_one_passed_on(rig):
    await rig.add("draining", rejects(500, "shutting down"))
    good = await rig.add("good")
    assert (await rig.post()).status == 200
    good.script = rejects(500, "a real bug")
    rig.replicas[0].script = rejects(500, "a real bug")
    answer = await rig.post()
    assert answer.status == 500
    assert answer.json["error"]["message"] == "a real bug"


async def test_a_failing_replica_is_left_alone_and_then_asked_again(rig):
    bad = await rig.add("bad", rejects(503))
    await rig.add("good")
    for _ in range(30):
        assert (await rig.post()).status == 200
    assert len(bad.seen) == 3
    snapshot = next(r for r in rig.frontend.snapshot(1).replicas if r.id == "bad")
    assert snapshot.consecutive_failures == 3
    bad.script = answers(["back"])
    async with asyncio.timeout(10):
        while (await rig.post()).headers["x-fleetctl-replica"] != "bad":
            await SYSTEM_CLOCK.sleep(0.05)
    snapshot = next(r for r in rig.frontend.snapshot(1).replicas if r.id == "bad")
    assert snapshot.consecutive_failures == 0


async def test_a_whole_answer_waits_for_a_new_replica_when_its_only_one_dies(rig):
    only = await rig.add("only", dies)
    waiting = asyncio.create_task(rig.post())
    await until(lambda: only.seen and rig.frontend.snapshot(1).lanes[0].queued == 1)
    await rig.add("new")
    answer = await waiting
    assert answer.status == 200
    assert answer.headers["x-fleetctl-replica"] == "new"


async def test_when_no_replica_comes_the_displaced_request_ends_as_503():
    async with GatewayRig(
        limits=replace(LIMITS, dispatch=DispatchLimits(displaced_wait_s=0.2)), lanes=(replace(CHAT, max_wait_s=0.1),)
    ) as rig:
        await rig.add("only", dies)
        answer = await rig.post()
        assert answer.status == 503
        assert answer.headers["x-fleetctl-reason"] == "no-replica"


async def test_a_lane_whose_replicas_are_all_ejected_is_broken_not_busy():
    async with GatewayRig(
        lanes=(replace(CHAT, max_wait_s=0.05),), limits=replace(LIMITS, dispatch=DispatchLimits(displaced_wait_s=0.05))
    ) as rig:
        rig.replicas.append(Scripted("gone", port=free_port()))
        rig.apply()
        for _ in range(3):
            await rig.post()
        answer = await rig.post()
        assert answer.status == 503
        assert answer.headers["x-fleetctl-reason"] == "no-replica"


async def test_a_displaced_request_does_not_block_the_queue_behind_it(rig):
    replica = await rig.add("only", dies)
    displaced = asyncio.create_task(rig.post())
    await until(lambda: rig.frontend.snapshot(1).lanes[0].queued == 1)
    replica.script = answers(["fine"])
    assert (await rig.post()).status == 200
    assert not displaced.done()
    displaced.cancel()


async def test_a_truncated_whole_answer_is_asked_for_again(rig):
    async def truncates(seen, wire):
        del seen
        await wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        wire.die()

    await rig.add("bad", truncates)
    await rig.add("good")
    for _ in range(3):
        answer = await rig.post()
        assert answer.json["choices"][0]["message"]["content"] == "Hello world"


@pytest.mark.parametrize(
    "garbage", [b"\x00\x01\x02 not http\r\n\r\n", b"HTTP/1.1 999999 X\r\n\r\n", b"HTTP/1.1 200 OK\r\nx"]
)
async def test_garbage_from_a_replica_is_a_failure_not_a_crash(rig, garbage):
    async def garbles(seen, wire):
        del seen
        await wire.raw(garbage)
        wire.die()

    await rig.add("bad", garbles)
    await rig.add("good")
    for _ in range(3):
        assert (await rig.post()).status == 200


async def test_a_stream_whose_replica_stalls_before_the_first_event_is_retried(rig):
    await rig.add("stuck", hangs)
    await rig.add("good")
    rig.apply(stall_timeout_s=0.3)
    for _ in range(3):
        answer = await rig.post(stream=True)
        assert answer.is_whole


async def test_a_request_that_takes_too_long_is_504(rig):
    await rig.add("stuck", hangs)
    rig.apply(request_timeout_s=0.3)
    answer = await rig.post()
    assert answer.status == 504
    assert rig.window().breached == {"timeout": 1}
    await until(lambda: rig.replicas[0].broken_off)


async def test_a_stream_that_takes_too_long_ends_with_an_error_and_no_done(rig):
    await rig.add("slow", answers(["x"] * 200, gap_s=0.05), continues=False)
    rig.apply(request_timeout_s=0.5)
    answer = await rig.post(stream=True)
    assert answer.status == 200
    assert answer.text
    assert answer.events[-1]["error"]["code"] == "gateway_timeout"
    assert not answer.is_whole
    assert rig.window().breached == {"timeout": 1}


async def test_a_replica_taken_out_of_rotation_finishes_its_streams(rig):
    old = await rig.add("old", answers(["x"] * 20, gap_s=0.02))
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.window().output_tokens > 2)
    old.in_rotation = False
    await rig.add("new")
    assert (await rig.post()).headers["x-fleetctl-replica"] == "new"
    rig.replicas.remove(old)
    rig.apply()
    answer = await response
    assert answer.is_whole
    assert answer.text == "x" * 20
    await old.stop()


async def test_a_removed_lane_finishes_what_it_carries(rig):
    await rig.add("r1", answers(["x"] * 20, gap_s=0.02))
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.window().output_tokens > 2)
    rig.lanes = (replace(CHAT, name="other"),)
    rig.replicas[0].lane = "other"
    rig.apply()
    assert (await rig.post(headers={"x-fleetctl-lane": "chat"})).status == 400
    assert (await response).is_whole
    rig.apply()
    assert [lane.name for lane in rig.frontend.snapshot(1).lanes] == ["other"]


async def test_an_older_table_is_not_taken(rig):
    await rig.add("r1")
    table = rig.table()
    assert not rig.frontend.apply(replace(table, version=table.version - 1, replicas=()))
    assert rig.frontend.apply(table)
    assert (await rig.post()).status == 200


async def test_a_slow_reader_holds_its_replica_back_and_memory_stays_bounded():
    limits = replace(LIMITS, client_write_bytes_high=65_536, client_stall_s=20.0)
    event = b"data: " + b'{"choices":[{"delta":{"content":"' + b"x" * 8000 + b'"}}]}' + b"\n\n"
    sent = 0

    async def floods(seen, wire):
        nonlocal sent
        del seen
        await wire.begin_events()
        for _ in range(5000):
            await wire.chunk(event)
            sent += len(event)
        await wire.event(delta(finish="stop"))
        await wire.done()

    async with GatewayRig(limits=limits) as rig:
        await rig.add("r1", floods)
        # A reader with a small limit stops reading soon after nobody takes its bytes.
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port, limit=1024)
        body = b'{"messages":[],"stream":true}'
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await until(lambda: sent > 100_000)
        before = -1
        while before != sent:
            before = sent
            await SYSTEM_CLOCK.sleep(0.3)
        assert sent < 20_000_000
        total = 0
        while total < 40_000_000:
            piece = await reader.read(1 << 20)
            if not piece:
                break
            total += len(piece)
        assert total >= 40_000_000
        writer.transport.abort()


async def test_a_client_that_does_not_read_is_cut_after_a_deadline():
    limits = replace(LIMITS, client_write_bytes_high=65_536, client_stall_s=0.3)
    async with GatewayRig(limits=limits) as rig:
        replica = await rig.add("r1", answers(["x" * 20_000] * 2000))
        _, writer = await asyncio.open_connection("127.0.0.1", rig.port, limit=1024)
        body = b'{"messages":[],"stream":true}'
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await until(lambda: replica.broken_off)
        await until(lambda: rig.frontend.connections == 0)
        writer.transport.abort()


async def test_whole_answers_survive_a_killed_replica_whatever_idle_connections_it_had(rig):
    async def slow(seen, wire):
        await SYSTEM_CLOCK.sleep(0.1)
        await answers(["fine"])(seen, wire)

    killed = await rig.add("killed", slow)
    await rig.add("other", slow)
    assert {a.status for a in await asyncio.gather(*(rig.post() for _ in range(72)))} == {200}
    # Every request goes over a connection that has been idle, and dies there before it is answered.
    before = len(killed.seen)
    responses = [asyncio.create_task(rig.post()) for _ in range(36)]
    await until(lambda: len(killed.seen) >= before + 12)
    await killed.kill()
    found = await asyncio.gather(*responses)
    assert [a.status for a in found] == [200] * 36
    assert all(a.headers["x-fleetctl-replica"] == "other" for a in found if a.status == 200 and a.json)


async def test_after_a_stale_connection_the_only_replica_is_asked_over_a_fresh_one(rig):
    closing = asyncio.Event()

    async def closes_idle(seen, wire):
        if closing.is_set() and seen.connection <= 3:
            wire.die()
            return
        await SYSTEM_CLOCK.sleep(0.05)
        await answers(["fine"])(seen, wire)

    only = await rig.add("only", closes_idle)
    await asyncio.gather(*(rig.post() for _ in range(3)))
    closing.set()
    assert (await rig.post()).status == 200
    assert max(s.connection for s in only.seen) == 4
