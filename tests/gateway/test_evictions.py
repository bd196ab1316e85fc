"""A conversation's lost prefix is named: which turn, how much, where, why, and who took the room."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.eviction import Eviction, EvictionCause, EvictionKind
from fleetctl.model.gateway import ReplicaSignals, SignalFeed
from fleetctl.model.request_trace import RequestTrace, TraceQuery
from tests.gateway.rig import CHAT, GatewayRig
from tests.gateway.scripted import Seen, Wire, completion, delta

if TYPE_CHECKING:
    from tests.gateway.scripted import Script

TOKENS_A_WORD = 1


@dataclass
class Cache:
    """An engine with a prefix cache that says what it found there; `forget` is what somebody else's prompts do to it."""

    kept: list[str] = field(default_factory=list)
    says: bool = True

    def forget(self) -> None:
        self.kept.clear()

    def usage(self, body: Any) -> dict[str, Any]:
        text = "".join(message["content"] for message in body["messages"])
        best = max((len(each) for each in self.kept if text.startswith(each)), default=0)
        self.kept.append(text)
        counts: dict[str, Any] = {"prompt_tokens": len(text) // 4, "completion_tokens": 2}
        if self.says:
            counts["prompt_tokens_details"] = {"cached_tokens": best // 4}
        return counts

    def script(self) -> Script:
        async def serve(seen: Seen, wire: Wire) -> None:
            counts = self.usage(seen.body)
            if not seen.body.get("stream"):
                await wire.whole(200, {**completion("fine"), "usage": counts})
                return
            await wire.begin_events()
            await wire.event(delta(role=True))
            await wire.event(delta("fine"))
            await wire.event(delta(finish="stop"))
            await wire.event({**delta(), "choices": [], "usage": counts})
            await wire.done()

        return serve


@pytest.fixture
async def rig():
    async with GatewayRig() as made:
        yield made


def turns(count: int, *, about: str = "a") -> list[dict[str, str]]:
    """Return the messages of a conversation's turn: each brings 4,000 characters, a thousand tokens or so."""
    found: list[Any] = []
    for turn in range(count):
        found.append({"role": "user", "content": f"{about}{turn:03d}" * 1000})
        if turn < count - 1:
            found.append({"role": "assistant", "content": "fine"})
    return found


async def say(rig: GatewayRig, count: int, *, about: str = "a", **more: Any) -> RequestTrace:
    answered = await rig.post(messages=turns(count, about=about), **more)
    assert answered.status == 200, answered.body
    [trace] = rig.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
    return trace


def lost(rig: GatewayRig) -> list[Eviction]:
    return list(rig.frontend.snapshot(1).evictions)


def read(rig: GatewayRig, replica: str, usage: float, *, preemptions: float = 0.0, prompt_tokens: float = 1e6) -> None:
    signals = ReplicaSignals(
        id=replica,
        age_s=0.0,
        running=1,
        waiting=0,
        kv_usage=usage,
        preemptions=preemptions,
        prompt_tokens=prompt_tokens,
    )
    rig.frontend.dispatcher.take_signals(SignalFeed(replicas=(signals,)))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_turn_that_finds_its_prefix_gone_says_who_filled_the_cache(rig: GatewayRig, stream: bool) -> None:
    cache = Cache()
    await rig.add("r1", cache.script())
    first = await say(rig, 1, stream=stream)
    assert (first.conversation, first.turn) == ("", 0), "whether there will be a second nobody knows"
    second = await say(rig, 2, stream=stream)
    assert (second.conversation, second.turn, second.prefix_lost) == ("c-1", 2, "")
    assert second.cached_tokens_found == 1000
    for number in range(3):
        await say(rig, 1, about=f"flood{number}", stream=stream)
    read(rig, "r1", 0.98)
    cache.forget()
    third = await say(rig, 3, stream=stream)
    [found] = lost(rig)
    assert (found.kind, found.cause) == (EvictionKind.PREFIX, EvictionCause.KV_PRESSURE)
    assert (found.conversation, found.turn, found.replica, found.lane) == ("c-1", 3, "r1", "chat")
    assert found.request_id == third.id
    # All of the turn before but its last, unfinished block of 512 bytes.
    assert 1850 <= found.cached_tokens_before <= 2001
    assert found.cached_tokens == 0
    assert found.kv_usage == 0.98
    assert [(each.lane, each.prompts) for each in found.fillers] == [("chat", 3)]
    assert found.fillers[0].tokens > 3000
    assert third.prefix_lost.startswith(f"turn 3 of c-1: {found.cached_tokens_before:,} cached tokens -> 0")
    assert "its KV at 98% at " in third.prefix_lost
    assert "filled by client" in third.prefix_lost
    assert (found.ttft_s is not None) is stream
    window = rig.window()
    assert (window.prefixes_lost, window.evicted) == (1, 1)
    assert window.prefix_tokens_lost == found.lost_tokens


async def test_without_pressure_nothing_is_blamed(rig: GatewayRig) -> None:
    cache = Cache()
    await rig.add("r1", cache.script())
    await say(rig, 1)
    read(rig, "r1", 0.3)
    cache.forget()
    trace = await say(rig, 2)
    [found] = lost(rig)
    assert found.cause is EvictionCause.UNKNOWN
    assert "nothing that was seen explains it" in trace.prefix_lost
    assert rig.window().evicted == 0, "only what lacked room is the caches' doing"


async def test_an_engine_that_began_anew_is_not_taken_for_a_full_one(rig: GatewayRig) -> None:
    cache = Cache()
    await rig.add("r1", cache.script())
    read(rig, "r1", 0.98, prompt_tokens=5000.0)
    await say(rig, 1)
    read(rig, "r1", 0.98, prompt_tokens=10.0)
    cache.forget()
    await say(rig, 2)
    [found] = lost(rig)
    assert found.cause is EvictionCause.RESTARTED


async def test_a_turn_that_went_elsewhere_says_why(rig: GatewayRig) -> None:
    first, second = Cache(), Cache()
    one = await rig.add("r1", first.script())
    await say(rig, 1)
    await say(rig, 2)
    await rig.add("r2", second.script())
    one.in_rotation = False
    rig.apply()
    trace = await say(rig, 3)
    assert trace.prefix_lost.endswith("replica r2; r1 had it, and takes no new requests")
    rig.replicas.remove(one)
    rig.apply()
    await one.stop()
    # It has the whole of it again, and goes with the replica that has it.
    assert (await say(rig, 4)).prefix_lost == ""
    third = await rig.add("r3", Cache().script())
    two = next(each for each in rig.replicas if each.id == "r2")
    rig.replicas.remove(two)
    rig.apply()
    gone = await say(rig, 5)
    assert gone.prefix_lost.endswith("replica r3; r2 had it, and is gone")
    assert [each.cause for each in lost(rig)] == [EvictionCause.DRAINED, EvictionCause.REPLACED]
    await two.stop()
    assert third.in_rotation


async def test_its_client_may_name_a_conversation_and_one_that_cuts_old_turns_off_loses_nothing(
    rig: GatewayRig,
) -> None:
    cache = Cache()
    await rig.add("r1", cache.script())
    named = {"x-fleetctl-conversation": "ticket-81"}
    traces: list[RequestTrace] = []
    for messages in (turns(1), turns(2), turns(3)[2:]):
        cache.forget()
        answered = await rig.post(messages=messages, headers=named)
        traces += rig.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
    assert [(each.conversation, each.turn) for each in traces] == [("ticket-81", 1), ("ticket-81", 2), ("ticket-81", 3)]
    assert [each.turn for each in lost(rig)] == [2]


@pytest.mark.parametrize("says", [True, False], ids=["counts what was cached", "does not"])
async def test_a_prompt_that_comes_again_is_the_next_turn_and_could_have_found_all_of_it(
    rig: GatewayRig, says: bool
) -> None:
    cache = Cache(says=says)
    await rig.add("r1", cache.script())
    traces = [await say(rig, 1) for _ in range(3)]
    assert [each.turn for each in traces] == [0, 2, 3]
    assert all(850 <= each.cached_tokens_before <= 1000 for each in traces[1:])
    assert lost(rig) == []
    cache.forget()
    assert (await say(rig, 1)).turn == 4
    assert [each.turn for each in lost(rig)] == ([4] if says else [])


async def test_of_more_conversations_than_are_remembered_the_last_used_are(rig: GatewayRig) -> None:
    rig.options["conversations"] = 2
    await rig.add("r1", Cache().script())
    for about in ("a", "b", "a", "c"):  # the last takes the place of b
        await say(rig, 1, about=about)
    assert [(await say(rig, 2, about=about)).turn for about in ("a", "c", "b")] == [3, 2, 0]


async def test_a_long_id_is_cut_and_stays_apart_from_others(rig: GatewayRig) -> None:
    await rig.add("r1", Cache().script())
    labels = set()
    for end in "ab":
        answered = await rig.post(messages=turns(1), headers={"x-fleetctl-conversation": "n" * 2000 + end})
        [trace] = rig.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
        labels.add(trace.conversation)
        assert len(trace.conversation) <= 80
        assert trace.turn == 1
    assert len(labels) == 2


@pytest.mark.parametrize("key", ["user", "prompt_cache_key"])
async def test_what_tells_users_apart_tells_their_conversations_apart(rig: GatewayRig, key: str) -> None:
    await rig.add("r1", Cache().script())
    await say(rig, 1, **{key: "ann"})
    assert (await say(rig, 2, **{key: "ben"})).turn == 0
    assert (await say(rig, 2, **{key: "ann"})).turn == 2


async def test_conversations_are_never_joined_across_keys(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    rig.options["api_key_hashes"] = tuple(_hash(key) for key in ("one-key-of-many", "other-key-of-many"))
    await rig.add("r1", Cache().script())
    found: list[Any] = []
    for count, key in ((1, "one-key-of-many"), (2, "other-key-of-many"), (2, "one-key-of-many")):
        headers = {"authorization": f"Bearer {key}", "x-fleetctl-conversation": "same"}
        answered = await rig.post(messages=turns(count), headers=headers)
        found += rig.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
    assert [each.turn for each in found] == [1, 1, 2]


def _hash(key: str) -> str:
    from hashlib import sha256  # beside its only use

    return f"sha256:{sha256(key.encode()).hexdigest()}"


async def test_a_key_is_called_by_its_name(rig: GatewayRig) -> None:
    names = {_hash("one-key-of-many"): "shop", _hash("other-key-of-many"): ""}
    rig.options |= {"api_key_hashes": tuple(names), "key_names": {key: name for key, name in names.items() if name}}
    cache = Cache()
    await rig.add("r1", cache.script())
    other = {"authorization": "Bearer other-key-of-many"}
    await rig.post(messages=turns(1), headers=other)
    await rig.post(messages=turns(1, about="f"), headers={"authorization": "Bearer one-key-of-many"})
    read(rig, "r1", 0.95)
    cache.forget()
    await rig.post(messages=turns(2), headers=other)
    assert [each.client for each in lost(rig)[0].fillers] == ["key shop"]


async def test_streams_that_an_engine_preempts_are_an_event_and_counted(rig: GatewayRig) -> None:
    await rig.add("r1", Cache().script())
    read(rig, "r1", 0.5, preemptions=40.0)
    assert lost(rig) == [], "what was before the first reading is nobody's"
    await say(rig, 1)
    read(rig, "r1", 0.99, preemptions=43.0)
    [found] = lost(rig)
    assert (found.kind, found.preempted, found.replica) == (EvictionKind.PREEMPTION, 3, "r1")
    assert found.fillers
    assert found.fillers[0].lane == "chat"
    assert rig.window().preempted == 3
    read(rig, "r1", 0.9, preemptions=0.0, prompt_tokens=1.0)
    assert len(lost(rig)) == 1, "a counter that begins anew has not gone up"
    page = (await rig.get("/metrics")).body.decode()
    assert 'fleetctl_gateway_preemptions_total{fleet="rig",lane="chat",replica="r1"} 3' in page


async def test_an_engine_that_does_not_say_what_was_cached_loses_nothing(rig: GatewayRig) -> None:
    cache = Cache(says=False)
    await rig.add("r1", cache.script())
    await say(rig, 1)
    trace = await say(rig, 2)
    assert (trace.turn, trace.cached_tokens_found, lost(rig)) == (2, None, [])


async def test_nothing_is_followed_where_it_is_switched_off(rig: GatewayRig) -> None:
    cache = Cache()
    rig.options["conversations"] = 0
    await rig.add("r1", cache.script())
    await say(rig, 1)
    cache.forget()
    assert (await say(rig, 2)).turn == 0
    assert lost(rig) == []
    assert rig.frontend.dispatcher.evictions.conversations == 0


async def test_what_is_remembered_is_bounded_and_holds_no_text(rig: GatewayRig) -> None:
    rig.options["conversations"] = 5
    await rig.add("r1", Cache().script())
    for number in range(12):
        await say(rig, 1, about=f"t{number}")
    assert rig.frontend.dispatcher.evictions.conversations == 5
    assert (await say(rig, 2, about="t11")).turn == 2
    assert (await say(rig, 2, about="t0")).turn == 0, "it was forgotten"
    kept = json.dumps([str(each) for each in lost(rig)])
    assert "t11t11" not in kept


async def test_a_long_prompt_is_followed_beyond_what_routing_looks_at(rig: GatewayRig) -> None:
    cache = Cache()
    await rig.add("r1", cache.script())
    await say(rig, 30)
    cache.forget()
    read(rig, "r1", 0.97)
    trace = await say(rig, 31)
    [found] = lost(rig)
    # 120,000 characters, of which the index of prefixes follows 65,536.
    assert 27_000 <= found.cached_tokens_before <= 30_100
    assert trace.prefix_lost.startswith("turn 2 of c-1: ")


async def test_a_lane_is_told_its_own(rig: GatewayRig) -> None:
    rig.lanes = (CHAT, replace(CHAT, name="other"))
    cache = Cache()
    await rig.add("r1", cache.script())
    await say(rig, 1)
    read(rig, "r1", 0.95)
    cache.forget()
    await say(rig, 2)
    assert rig.window("chat").prefixes_lost == 1
    assert rig.window("other").prefixes_lost == 0
