"""Fleets to look at."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from fleetctl.core.slo.judge import judge_live
from fleetctl.model.action import EntryKind
from fleetctl.model.catalogue import Market
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.journal import JournalEntry
from fleetctl.model.ladder import LadderStep
from fleetctl.model.observation import EngineSignals
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, Quantiles, TargetCount, Validity
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.model.stream import StreamFigures
from fleetctl.model.subject import Subject
from fleetctl.model.tiers import TierSnapshot, TierWindow
from fleetctl.model.verdict import BreachRecord, SloVerdict
from fleetctl.testing.samples import EPOCH, lane_slo, replica
from tests.workflows.played import Call, play, tracker_of

COMPLETION = LaneSlo(targets=(LatencyTarget(metric=Metric.COMPLETION, percentile=0.95, limit_s=4 * 3600.0),))


def quantiles(p99_s: float, *, count: int = 900) -> Quantiles:
    return Quantiles(count=count, p50_s=p99_s * 0.4, p95_s=p99_s * 0.8, p99_s=p99_s, max_s=p99_s * 1.3)


def streams(gap_s: float, *, answers: int, stalled: int) -> StreamFigures:
    return StreamFigures.of(
        quantiles(gap_s),
        answers=answers,
        stalled_answers=stalled,
        stalls=2 * stalled,
        chunks=answers * 120,
        tokens=answers * 126,
    )


def traffic(
    name: str,
    *,
    ttft_s: float,
    itl_s: float,
    wait_s: float,
    rps: float,
    count: int = 900,
    refused: int = 0,
    late: int = 0,
    ttft_limit_s: float = 0.3,
) -> LaneSnapshot:
    offered = round(rps * 60)
    window = LaneWindow(
        seconds=60.0, offered=offered, good=offered - late - refused, finished=offered,
        shed={"would-wait": refused} if refused else {},
        breached={kind: number for kind, number in (("ttft", late), ("refused", refused)) if number},
        targets=(TargetCount(target=lane_slo(ttft_s=ttft_limit_s).targets[0], samples=count, over=late, measured_s=ttft_s),),
        ttft=quantiles(ttft_s, count=count), itl=quantiles(itl_s, count=count),
        e2e=quantiles(ttft_s + itl_s * 120, count=count), queue_wait=quantiles(wait_s, count=count),
        streams=streams(itl_s, answers=offered, stalled=late),
    )  # fmt: skip
    return LaneSnapshot(
        name=name, in_flight=int(rps * 2), queued=refused // 4, oldest_wait_s=wait_s,
        windows=(msgspec.structs.replace(window, seconds=10.0, offered=round(rps * 10)), window),
        replica_streams={"r1": streams(itl_s, answers=offered // 2, stalled=0)} if name == "short" else {},
    )  # fmt: skip


def verdict(lane: LaneSnapshot, *, since_s: float = 45.0) -> SloVerdict:
    record = BreachRecord(since=EPOCH - timedelta(seconds=since_s), names=("ttft P99",))
    return judge_live(lane, objective=0.99, before=record, now=EPOCH)


LONG = traffic("long", ttft_s=2.41, itl_s=0.071, wait_s=1.8, rps=5.2, refused=14, late=40, ttft_limit_s=2.0)


def lanes() -> tuple[LaneStatus, ...]:
    return (
        LaneStatus(
            name="short", slo=lane_slo(), wanted=3, ready=3, spot=1, on_demand=2, live=3, step=LadderStep.NORMAL,
            burn={"5m": 0.4, "1h": 0.2}, validity=Validity.OK, pressure=0.41,
            traffic=traffic("short", ttft_s=0.212, itl_s=0.022, wait_s=0.004, rps=12.4),
            reasons=(ReasonCode.LOAD.because("3 wanted: 12.4 rps against a knee of 19.1"),),
        ),
        LaneStatus(
            name="long", slo=lane_slo(ttft_s=2.0, itl_s=0.08), wanted=3, ready=2, spot=1, on_demand=2, live=3,
            step=LadderStep.SPILL, burn={"5m": 18.2, "1h": 3.1}, burn_alert=True, validity=Validity.OK, pressure=0.93,
            traffic=LONG, verdict=verdict(LONG),
            reasons=(ReasonCode.LOAD.because("+1: queue wait 1.8 s > 1.5 s, forecast 6.9 rps, rho 0.93"),), pending=1,
        ),
        LaneStatus(
            name="batch", slo=COMPLETION, wanted=1, ready=1, spot=1, on_demand=0, live=1, step=LadderStep.PAUSE_BATCH,
            burn={"5m": 0.0}, validity=Validity.FEW, pressure=0.1,
            traffic=traffic("batch", ttft_s=1.1, itl_s=0.031, wait_s=42.0, rps=0.3, count=18),
            reasons=(ReasonCode.LOAD.because("paused: long is above 0.8"),),
        ),
    )  # fmt: skip


def replicas() -> tuple[ReplicaStatus, ...]:
    spot: dict[str, Any] = {"market": Market.SPOT, "price_usd_per_hour": 0.7444}

    def one(replica_id: str, lane: str, state: ReplicaState, minutes: float, **changes: Any) -> ReplicaStatus:
        kv = float(changes.pop("kv", 0.5))
        running = int(kv * 40)
        record = replica(
            replica_id,
            lane=lane,
            state=state,
            created_at=EPOCH - timedelta(minutes=minutes),
            changed_at=EPOCH,
            **changes,
        )
        ok = state in (ReplicaState.READY, ReplicaState.DRAINING)
        engine = EngineSignals(validity=Validity.OK, at=EPOCH, running=running, waiting=int(kv * 3), kv_usage=kv)
        return ReplicaStatus(record=record, engine=engine if ok else EngineSignals(), in_flight=running if ok else 0)

    return (
        one("r1", "short", ReplicaState.READY, 184, kv=0.38, reason="in rotation"),
        one("r2", "short", ReplicaState.READY, 184, kv=0.35, reason="in rotation"),
        one("r3", "short", ReplicaState.READY, 61, kv=0.41, reason="in rotation", **spot),
        one("r20", "long", ReplicaState.BOOTING, 0.6, reason="waiting for /health", **spot),
        one("r11", "long", ReplicaState.READY, 184, kv=0.94, reason="in rotation"),
        one("r12", "long", ReplicaState.DRAINING, 184, kv=0.82, reason="interruption notice; r20 replaces it",
            notice_deadline=EPOCH + timedelta(seconds=97), **spot),
        one("r31", "batch", ReplicaState.READY, 12, kv=0.0, reason="in rotation", **spot),
        one("r32", "batch", ReplicaState.FAILED, 30, fault="exit 1 while booting", **spot),
        one("r33", "batch", ReplicaState.GONE, 300, reason="scaled down", **spot),
    )  # fmt: skip


def decisions() -> tuple[JournalEntry, ...]:
    def one(
        seq: int, seconds_ago: float, kind: str, subject: str, action: str, reason: str, **changes: Any
    ) -> JournalEntry:
        base = JournalEntry(
            seq=seq, at=EPOCH - timedelta(seconds=seconds_ago), fleet="demo", kind=EntryKind(kind),
            subject=(Subject.replica if subject[-1].isdigit() else Subject.lane)(subject),
            action=action, reason=reason,
        )  # fmt: skip
        return replace(base, **changes)

    return (
        one(101, 184, "lifecycle", "r32", "mark-gone", "exit 1 while booting; the next try waits 20 s", ok=False),
        one(102, 122, "operator", "short", "scale", "replicas 2 -> 3, by hand"),
        one(103, 60, "decision", "batch", "set-step", "pause-batch: long is above 0.8"),
        one(104, 48, "decision", "short", "launch", "would add one; shadow", shadow=True),
        one(105, 36, "decision", "long", "launch", "+1: queue wait 1.8 s > 1.5 s, forecast 6.9 rps, rho 0.93"),
        one(106, 23, "notice", "r12", "drain", "interruption notice: taken in 120 s; out of rotation at once"),
        one(107, 23, "decision", "long", "launch", "r20 replaces r12"),
        one(108, 2, "decision", "long", "set-step", "spill: pressure 0.93 for 10 s"),
    )


def busy(**changes: Any) -> FleetStatus:
    """Return a fleet with something of everything."""
    base = FleetStatus(
        fleet="demo", at=EPOCH, phase=DesiredPhase.UP, mode=Mode.ACTIVE, model="meta-llama/Llama-3.1-8B-Instruct",
        provider="local", generation=4, gateway_url="http://127.0.0.1:8080", gateway_alive=True,
        controller_alive=True, controller_pid=4242, gateway_pid=4243, cost_usd_per_hour=9.3,
        max_cost_usd_per_hour=55.0, cost_usd_per_1m_tokens=0.41, lanes=lanes(), replicas=replicas(),
        decisions=decisions(),
    )  # fmt: skip
    return replace(base, **changes)


def calm() -> FleetStatus:
    """Return a fleet that is up and well, before its first request."""
    quiet = tuple(
        replace(lane, wanted=2, ready=2, live=2, pending=0, step=LadderStep.NORMAL, burn={}, validity=Validity.NONE,
                traffic=LaneSnapshot(name=lane.name, in_flight=0, queued=0, oldest_wait_s=0.0,
                                     windows=()), pressure=None, verdict=SloVerdict(), reasons=(ReasonCode.PLANNED.because("as planned"),))
        for lane in lanes()
    )  # fmt: skip
    kept = tuple(r for r in replicas() if r.record.id in ("r1", "r2", "r11", "r31"))
    return busy(lanes=quiet, replicas=kept, decisions=(), cost_usd_per_1m_tokens=None, max_cost_usd_per_hour=None)


def tier(name: str, *, p99_s: float, limit_s: float, missed: int = 0, share: float = 0.3, **how: Any) -> TierSnapshot:
    own = LaneSlo(
        targets=(
            LatencyTarget(metric=Metric.TTFT, percentile=0.5, limit_s=limit_s / 2),
            LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=limit_s),
        )
    )
    window = TierWindow(
        seconds=300.0, offered=1200, good=1200 - missed, missed=missed, refused={"tier-share": missed}, token_share=share,
        ttft=quantiles(p99_s),
    )  # fmt: skip
    return TierSnapshot(name=name, slo=own, windows=(window,), **how)


def tiered() -> FleetStatus:
    """Return the busy fleet with tiers, of which one misses its promise and one is no more, and workflows."""
    short, *others = lanes()
    assert short.traffic is not None
    tiers = (
        tier("premium", p99_s=0.41, limit_s=0.3, missed=31, share=0.612, due=0.59, floor=0.2, in_flight=9, queued=2),
        tier("free", p99_s=0.2, limit_s=5.0, share=0.27, due=0.41, floor=0.05),
        tier("trial", p99_s=0.3, limit_s=5.0, share=0.118, is_removed=True),
    )
    tracker = tracker_of()
    for number in range(40):
        play(tracker, [Call(0, 2, wait_s=1, workflow=f"w{number}"), Call(3, 9.0, wait_s=1, workflow=f"w{number}")])
    tracker.sweep(200.0)
    with_tiers = replace(short, traffic=replace(short.traffic, tiers=tiers))
    return busy(lanes=(with_tiers, *others), workflows=tracker.snapshot(210.0))
