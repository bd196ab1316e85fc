"""What the gateway remembers of requests that are over."""

from __future__ import annotations

import asyncio
import json

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.admission.keys import sha256_hash
from fleetctl.model.gateway import RouteLane
from fleetctl.model.profile import LaneMatch
from fleetctl.model.request_trace import RequestTrace, TraceQuery
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from tests.gateway.rig import CHAT, GatewayRig
from tests.gateway.scripted import answers, dies, rejects

HURRIED = RouteLane(
    name="chat",
    match=LaneMatch(),
    slo=LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.001),)),
    max_wait_s=5.0,
    queue_max=1,
)


def found_by(rig: GatewayRig, **query: object) -> tuple[RequestTrace, ...]:
    return rig.frontend.ended.find(TraceQuery(**query)).requests  # type: ignore[arg-type]


@pytest.fixture
async def rig():
    async with GatewayRig() as made:
        yield made


async def test_every_answer_names_its_request_and_the_request_is_found_by_that(rig):
    await rig.add("r1", answers(["a", "b", "c"], gap_s=0.01))
    answered = await rig.post(stream=True)
    [trace] = found_by(rig, id=answered.headers["x-request-id"])
    assert (trace.lane, trace.replica, trace.verdict, trace.ending) == ("chat", "r1", "good", "complete")
    assert trace.queue_wait_s is not None
    assert trace.queue_wait_s < 0.05
    assert trace.ttft_s is not None
    assert trace.total_s > trace.ttft_s > 0
    assert trace.output_tokens == 3
    assert trace.gaps == 2
    assert trace.gap_s_max is not None
    assert trace.gap_s_p99 is not None
    assert trace.gap_s_max >= trace.gap_s_p99 >= 0.005
    assert [a.failure for a in trace.attempts] == [""]
    assert trace.attempts[0].predicted_ttft_s > 0


async def test_a_lawful_id_of_the_client_is_kept_passed_on_and_returned(rig):
    replica = await rig.add("r1")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    traceparent = f"00-{trace_id}-b7ad6b7169203331-01"
    answered = await rig.post(headers={"X-Request-Id": "mine:1/e", "traceparent": traceparent})
    assert answered.headers["x-request-id"] == "mine:1/e"
    assert replica.seen[0].headers["x-request-id"] == "mine:1/e"
    assert replica.seen[0].headers["traceparent"] == traceparent
    by_id, by_trace, by_parent = (found_by(rig, id=each) for each in ("mine:1/e", trace_id, traceparent))
    assert [t.seq for t in by_id] == [t.seq for t in by_trace] == [t.seq for t in by_parent] == [1]
    assert by_id[0].trace_id == trace_id


@pytest.mark.parametrize("unlawful", ["two words", "a\tb", "x" * 129, "x" * 8000, 'a"b', ""])
async def test_an_unlawful_id_is_replaced_for_the_client_and_for_the_engine(rig, unlawful):
    replica = await rig.add("r1")
    answered = await rig.post(headers={"x-request-id": unlawful})
    assert answered.headers["x-request-id"].startswith("req-")
    assert replica.seen[0].headers["x-request-id"] == answered.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/v1/nowhere", {}, {}, 404),
        ("/v1/models", {}, {}, 405),
        ("/v1/chat/completions", {"x-fleetctl-lane": "nope"}, {}, 400),
        ("/v1/chat/completions", {}, {"max_tokens": 500_000}, 400),
        ("/v1/chat/completions", {}, {"messages": 3}, 400),
    ],
)
async def test_an_answer_without_a_lane_has_the_clients_id_or_one_of_its_own(rig, path, headers, body, status):
    await rig.add("r1")
    rig.change_lane("chat", max_model_len=4096)
    named = await rig.post(path=path, headers=headers | {"x-request-id": "mine-1"}, **body)
    own = await rig.post(path=path, headers=headers, **body)
    assert (named.status, named.headers["x-request-id"]) == (status, "mine-1")
    assert own.headers["x-request-id"].startswith("req-")
    for answered in (named, own):
        (early,) = rig.frontend.early.find(answered.headers["x-request-id"])
        assert (early.status, early.reason) == (status, answered.headers.get("x-fleetctl-reason", ""))
        assert early.message == json.loads(answered.body)["error"]["message"][:300]
        assert found_by(rig, id=early.id) == ()


async def test_an_early_refusal_is_found_by_its_trace_and_only_the_last_of_them_are_kept(rig):
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await rig.add("r1")
    await rig.post(path="/v1/nowhere", headers={"x-request-id": "first", "traceparent": traceparent})
    early = rig.frontend.early
    by_trace = [early.find(each) for each in ("0af7651916cd43dd8448eb211c80319c", traceparent, "first")]
    assert [[each.id for each in found] for found in by_trace] == [["first"]] * 3
    assert early.find("") == early.find("0" * 32) == early.find("-") == ()
    for number in range(512):
        await rig.post(path="/v1/nowhere" + "x" * 500, headers={"x-request-id": f"n{number}"})
    assert early.find("first") == ()
    (oldest,) = early.find("n0")
    assert len(oldest.message) == 300


async def test_a_request_with_a_wrong_key_is_found_and_a_flood_of_them_has_nobody_else_forgotten(rig):
    await rig.add("r1")
    await rig.post(path="/v1/nowhere", headers={"x-request-id": "mine"})
    rig.apply(api_key_hashes=(sha256_hash("right"),))
    for number in range(513):
        await rig.post(headers={"x-request-id": f"k{number}", "authorization": "Bearer wrong"})
    assert rig.frontend.early.find("k0") == ()
    (early,) = rig.frontend.early.find("k512")
    assert (early.status, early.reason, early.message) == (401, "invalid_api_key", "no or wrong API key")
    assert [each.status for each in rig.frontend.early.find("mine")] == [404]


async def test_two_requests_never_share_an_id(rig):
    await rig.add("r1")
    answered = await asyncio.gather(*(rig.post() for _ in range(20)))
    assert len({each.headers["x-request-id"] for each in answered}) == 20


async def test_a_refused_request_says_why_and_what_it_was_told():
    async with GatewayRig(lanes=(HURRIED,)) as rig:
        await rig.add("r1", answers(["a"] * 5, gap_s=0.05), concurrency_max=1)
        answered = await asyncio.gather(*(rig.post(stream=True) for _ in range(6)))
        refused = next(each for each in answered if each.status == 429)
        [trace] = found_by(rig, id=refused.headers["x-request-id"])
        assert (trace.verdict, trace.ending) == ("refused", "refused")
        assert trace.refusal == refused.headers["x-fleetctl-reason"]
        assert trace.attempts == ()
        assert trace.retry_after_s is not None
        assert trace.retry_after_s > 0
        assert trace.attempts == ()
        assert trace.queue_wait_s is None


async def test_the_status_by_which_a_replica_rejects_a_request_is_kept(rig):
    await rig.add("r1", rejects(404))
    answered = await rig.post()
    [trace] = found_by(rig, id=answered.headers["x-request-id"])
    assert (trace.verdict, trace.rejected_status, trace.replica) == ("rejected", 404, "r1")


async def test_those_that_missed_outlive_those_that_were_good():
    async with GatewayRig(lanes=(HURRIED,)) as rig:
        await rig.add("r1", answers(["a"], gap_s=0.01))
        late = await rig.post(stream=True)
        rig.change_lane("chat", slo=CHAT.slo, queue_max=1000)
        for _ in range(2):
            await asyncio.gather(*(rig.post() for _ in range(600)))
        assert not any(each.verdict == "ttft" for each in found_by(rig, after=0, limit=10_000))
        [trace] = found_by(rig, is_missed=True)
        assert trace.id == late.headers["x-request-id"]
        assert rig.frontend.ended.find(TraceQuery(after=0)).forgotten > 0


async def test_a_request_that_was_sent_elsewhere_tells_of_both_replicas(rig):
    await rig.add("r1", dies)
    answered = asyncio.ensure_future(rig.post(stream=True))
    await SYSTEM_CLOCK.sleep(0.05)
    await rig.add("r2")
    [trace] = found_by(rig, id=(await answered).headers["x-request-id"])
    assert trace.attempts[0].replica == "r1"
    assert trace.attempts[0].failure


def cuts(rig: GatewayRig) -> dict[str, tuple[int, int]]:
    return {each.id: (each.cut, each.lost) for each in rig.frontend.snapshot(1).cuts or ()}


async def test_a_request_that_a_replica_broke_off_and_another_answered_is_cut_and_not_lost(rig):
    await rig.add("r1", dies)
    answered = asyncio.ensure_future(rig.post(stream=True))
    await SYSTEM_CLOCK.sleep(0.05)
    assert cuts(rig) == {}  # it is not over yet
    await rig.add("r2")
    assert (await answered).status == 200
    assert cuts(rig) == {"r1": (1, 0)}


async def test_an_answer_that_broke_off_and_went_on_nowhere_is_lost_and_an_error_is_no_cut(rig):
    await rig.add("r1", answers(["a", "b", "c"], die_after=1))
    await rig.post(stream=True)
    assert cuts(rig) == {"r1": (1, 1)}
    async with GatewayRig() as other:
        await other.add("r1", rejects(500))
        await other.post()
        assert cuts(other) == {}


async def test_who_asks_again_after_a_number_misses_no_request(rig):
    await rig.add("r1")
    seen, after = [], 0
    for _ in range(3):
        await asyncio.gather(*(rig.post() for _ in range(7)))
        while found := found_by(rig, after=after, limit=5):
            seen += [each.seq for each in found]
            after = seen[-1]
    assert seen == list(range(1, 22))


async def test_nothing_of_what_a_client_wrote_is_kept(rig):
    await rig.add("r1")
    await rig.post(messages=[{"role": "user", "content": "a secret of mine"}])
    [kept] = rig.frontend.ended.kept("chat")
    assert not hasattr(kept, "exchange")
    assert not kept.hashes
