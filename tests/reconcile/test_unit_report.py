"""The tokens of a chunk in decisions: a change that lasts is journalled once, whatever comes and goes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.codec import decode, encode
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.slo import Quantiles
from fleetctl.model.stream import StreamFigures
from fleetctl.model.stream_report import ReportStreamUnit
from fleetctl.model.subject import Subject
from tests.reconcile.worlds import decide, observation, observed, of_kind, one_lane, snapshot, traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.observation import ObservedReplica

PLANNED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
PACE_S = 0.025  # a token
OLD, NEW = "0.32.0", "0.33.0"


def figures(tokens_per_chunk: float, *, answers: int = 40, chunks: int = 1200) -> StreamFigures:
    gap_s = PACE_S * tokens_per_chunk
    return StreamFigures.of(
        Quantiles(count=chunks, p50_s=gap_s, p95_s=gap_s, p99_s=gap_s, max_s=gap_s),
        answers=answers, stalled_answers=0, stalls=0, chunks=chunks, tokens=round(chunks * tokens_per_chunk),
    )  # fmt: skip


def replicas(second: int, *, updated_at: int | None = None) -> tuple[ObservedReplica, ...]:
    """Return r1 and r2, or from an update on also r3 and r4, which are newer and of another version."""
    newer = (
        (observed("r3", record_reported_version=NEW), observed("r4", record_reported_version=NEW))
        if updated_at is not None and second >= updated_at
        else ()
    )
    return (observed("r1", record_reported_version=OLD), observed("r2", record_reported_version=OLD), *newer)


def reported(
    unit_at: Callable[[int, str], float],
    seconds: int,
    *,
    updated_at: int | None = None,
    streams: Callable[[float], StreamFigures] = figures,
) -> list[tuple[int, ReportStreamUnit]]:
    """Return what is reported of a lane whose replicas have these units; the controller is restarted each tick."""
    memory, found = PLANNED, []
    for second in range(0, seconds, 5):
        seen = replicas(second, updated_at=updated_at)
        lane = replace(
            traffic("short", ttft_s=0.05, wait_s=0.001, rps=1.0),
            replica_streams={r.record.id: streams(unit_at(second, r.record.id)) for r in seen},
        )
        now_s = 3600 + second
        decision = decide(one_lane(), observation(*seen, gateway=snapshot(lane, now_s=now_s), now_s=now_s), memory)
        memory = decode(Memory, encode(decision.memory))
        found += [(second, each) for each in of_kind(decision, ReportStreamUnit)]
    return found


def test_a_unit_that_stays_is_no_news() -> None:
    assert reported(lambda _, __: 4.0, 1200) == []


def test_an_update_that_changes_the_unit_is_reported_once_with_both_units_and_the_same_pace() -> None:
    [(second, report)] = reported(lambda _, name: 1.0 if name in ("r3", "r4") else 4.0, 2000, updated_at=300)
    assert 360 <= second <= 370  # a minute after the new ones answer, though the old ones go on
    assert report.subject == Subject.lane("short")
    assert report.noted["tokens_per_chunk_before"] == 4.0
    assert report.noted["tokens_per_chunk"] == 1.0
    assert report.reason == (
        "4.0 -> 1.0 tokens a chunk with emulator 0.33.0, emulator 0.32.0 before; gaps between chunks P50 100ms -> 25ms; "
        "tokens come as fast (25ms a token before, 25ms now)"
    )


def test_an_update_that_is_rolled_back_is_reported_twice() -> None:
    found = reported(lambda second, name: 1.0 if name in ("r3", "r4") and second < 600 else 4.0, 2400, updated_at=300)
    assert [report.noted["tokens_per_chunk"] for _, report in found] == [1.0, 4.0]


def test_a_unit_that_comes_and_goes_with_load_is_not_reported() -> None:
    assert reported(lambda second, _: 2.0 if second % 600 < 300 else 1.0, 3600) == []
    assert reported(lambda second, _: 1.0 + second % 60 / 30, 3600) == []  # no unit holds


def test_a_unit_that_stays_changed_is_reported_also_where_nothing_else_changed() -> None:
    [(second, report)] = reported(lambda second, _: 4.0 if second < 300 else 1.0, 3600)
    assert second >= 900
    assert "with" not in report.reason.split(";")[0]


def test_a_slow_drift_is_reported_once_it_is_far_enough() -> None:
    found = reported(lambda second, _: 1.0 + second / 3600, 7200)
    assert len(found) >= 1
    assert found[0][1].noted["tokens_per_chunk_before"] == 1.0


def test_few_answers_say_nothing() -> None:
    def few(tokens_per_chunk: float) -> StreamFigures:
        return figures(tokens_per_chunk, answers=2, chunks=60)

    assert reported(lambda second, _: 4.0 if second < 300 else 1.0, 3600, streams=few) == []
