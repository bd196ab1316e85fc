"""Evictions in decisions: named a few times a minute, counted beyond that, and never twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.core.evictions.wording import eviction_text
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.eviction import Eviction, EvictionCause, EvictionKind, KvFiller
from fleetctl.model.eviction_report import ReportEviction
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, one_lane, snapshot, traffic

PLANNED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
LOST = Eviction(
    seq=1, at=at(3600), kind=EvictionKind.PREFIX, cause=EvictionCause.KV_PRESSURE, lane="short", replica="short-2",
    conversation="c-81", turn=12, request_id="req-1", replica_before="short-2", cached_tokens_before=27_800,
    ttft_s_before=0.8, ttft_s=3.4, kv_usage=0.98, kv_since=at(3571), kv_until=at(3600),
    fillers=(KvFiller(client="key acme", lane="short", prompts=14, tokens=61_000),),
)  # fmt: skip


def lost(*seqs: int, **changes: Any) -> tuple[Eviction, ...]:
    return tuple(msgspec.structs.replace(LOST, seq=seq, **changes) for seq in seqs)


class Controller:
    """Decides tick after tick, its memory stored in between."""

    def __init__(self) -> None:
        self.memory = PLANNED

    def tick(
        self, *found: Eviction, now_s: float, started_s: float = 0.0, validity: Validity = Validity.OK
    ) -> list[ReportEviction]:
        lane = traffic("short", rps=1.0, ttft_s=0.05, wait_s=0.001)
        gateway = replace(
            snapshot(lane, now_s=now_s), evictions=found, evictions_seq=max((e.seq for e in found), default=0),
            started_at=at(started_s),
        )  # fmt: skip
        seen = observation(observed("r1"), observed("r2"), gateway=gateway, gateway_validity=validity, now_s=now_s)
        decision = decide(one_lane(), seen, self.memory)
        self.memory = decode(Memory, encode(decision.memory))
        return of_kind(decision, ReportEviction)


def test_an_eviction_is_journalled_once_with_all_that_is_known_of_it() -> None:
    controller = Controller()
    [first] = controller.tick(*lost(1), now_s=3600)
    assert first.code is ReasonCode.PREFIX_LOST
    assert first.name == "eviction"
    assert first.reason == (
        "turn 12 of c-81: 27,800 cached tokens -> 0, TTFT 800ms -> 3.4s, replica short-2, its KV at 98% between "
        f"{at(3571):%H:%M:%S} and {at(3600):%H:%M:%S}, filled by key acme's 14 prompts in short (61,000 tokens)"
    )
    assert first.figures["cause"] == "kv-pressure"
    assert first.figures["request"] == "req-1"
    assert first.figures["cached_tokens_before"] == 27_800
    assert controller.tick(*lost(1), now_s=3601) == []


def test_a_storm_is_named_three_times_a_minute_and_counted_beyond_that() -> None:
    controller = Controller()
    assert len(controller.tick(*lost(*range(1, 11)), now_s=3600)) == 3
    assert controller.tick(*lost(*range(5, 16)), now_s=3610) == []
    found = controller.tick(*lost(*range(5, 16)), now_s=3661)
    assert [each.reason.partition(":")[0] for each in found] == ["12 more in 1m"]
    assert found[0].figures["causes"] == "12 kv-pressure"
    assert controller.tick(*lost(16), now_s=3670)[0].figures["turn"] == 12


def test_a_gateway_that_began_anew_counts_anew() -> None:
    controller = Controller()
    assert len(controller.tick(*lost(7), now_s=3600)) == 1
    assert len(controller.tick(*lost(1), now_s=3700, started_s=3650)) == 1


def test_nothing_is_said_of_figures_that_are_not_current() -> None:
    controller = Controller()
    assert controller.tick(*lost(1), now_s=3600, validity=Validity.STALE) == []
    assert len(controller.tick(*lost(1), now_s=3601)) == 1


def test_another_lanes_are_not_its_own() -> None:
    assert Controller().tick(*lost(1, lane="long"), now_s=3600) == []


def test_preempted_streams_are_told_from_lost_prefixes() -> None:
    preempted = lost(1, kind=EvictionKind.PREEMPTION, preempted=3, conversation="", turn=0)
    [first] = Controller().tick(*preempted, now_s=3600)
    assert first.code is ReasonCode.PREEMPTED
    assert first.reason.startswith("short-2 preempted 3 streams, its KV at 98% between")


def test_every_cause_has_words() -> None:
    texts = {eviction_text(each) for cause in EvictionCause for each in lost(1, cause=cause, replica_before="short-1")}
    assert len(texts) == len(EvictionCause)


def test_a_cache_that_was_never_read_as_full_says_what_filled_it_all_the_same() -> None:
    [found] = lost(1)
    text = eviction_text(msgspec.structs.replace(found, kv_usage=0.121, kv_until=found.kv_since))
    assert "its KV at 12.1% at " in text
    assert (
        "(of requests alone), and since the turn before as many tokens came as it had free, filled by key acme's"
        in text
    )
    assert "as many tokens" not in eviction_text(found)
