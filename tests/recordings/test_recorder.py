"""A recorder says each thing once, and what it missed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.model.recording import GapKind
from fleetctl.model.replica import ReplicaState
from fleetctl.recordings.recorder import Recorder
from fleetctl.testing import samples
from tests.recordings.traces import answer, desired, of_kind, trace

LATER = samples.EPOCH + timedelta(minutes=1)


def recorder(*, reads_from: int = 0) -> Recorder:
    """Return one that has looked at its gateway once."""
    found = Recorder(desired(), at=samples.EPOCH, version="0")
    assert list(found.note_requests(answer(trace(reads_from), last_seq=reads_from))) == []
    return found


def test_what_ended_before_it_began_is_left_out_and_each_request_is_written_once():
    found = recorder(reads_from=7)
    assert found.query.after == 7
    ended = trace(8, tier="gold", gaps=9, gap_s_mean=0.02, gap_s_p99=0.03, gap_s_max=0.04)
    (first,) = of_kind("request", found.note_requests(answer(ended)))
    assert (first.lane, first.tier, first.ttft_s) == ("short", "gold", 0.1)
    assert (first.gap_s_mean, first.gap_s_p99, first.gap_s_max) == (0.02, 0.03, 0.04)
    assert found.query.after == 8
    assert list(found.note_requests(answer(last_seq=8))) == []


def test_requests_that_the_gateway_forgot_are_counted_exactly_once():
    found = recorder(reads_from=10)
    first = list(found.note_requests(answer(trace(11), trace(500), last_seq=900)))
    assert found.has_more(answer(last_seq=900))
    again = list(found.note_requests(answer(trace(501), trace(900), last_seq=900)))
    gaps = of_kind("gap", first + again)
    assert [(gap.kind, gap.requests) for gap in gaps] == [(GapKind.OVERRUN, 488), (GapKind.OVERRUN, 398)]
    assert (found.requests, found.requests_missed) == (4, 886)
    assert found.requests + found.requests_missed == 900 - 10


def test_a_restarted_gateway_is_a_gap_and_is_then_read_from_its_first_request():
    found = recorder(reads_from=10)
    (gap,) = of_kind("gap", found.note_requests(answer(trace(3), started_at=LATER)))
    assert (gap.kind, gap.requests, gap.until) == (GapKind.GATEWAY_RESTART, None, LATER)
    assert found.query.after == 0
    rows = list(found.note_requests(answer(trace(1), trace(2), trace(3), started_at=LATER)))
    assert [bool(row.request) for row in rows] == [True] * 3


def test_replicas_are_written_as_they_change_and_those_long_gone_never():
    found = recorder()
    ready, gone = samples.replica("r1"), samples.replica("r2", state=ReplicaState.GONE)
    assert [r.id for r in of_kind("replica", found.note_replicas([ready, gone]))] == ["r1"]
    assert list(found.note_replicas([ready, gone])) == []
    ended = replace(ready, state=ReplicaState.GONE)
    assert [r.state for r in of_kind("replica", found.note_replicas([ended, gone]))] == [ReplicaState.GONE]
    assert list(found.note_replicas([ended, gone])) == []


def test_what_should_be_is_written_when_it_changes():
    found = recorder()
    assert list(found.note_desired(desired())) == []
    changed = replace(desired(), generation=9)
    assert [d.generation for d in of_kind("desired", found.note_desired(changed))] == [9]
