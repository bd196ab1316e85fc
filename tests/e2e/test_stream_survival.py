"""Streams outlive the replicas they run on: a bounded run of tests/bench/stream_survival.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.stream_survival import LANES, Campaign, survive

if TYPE_CHECKING:
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# A shared machine starts engines while others stream; the bars themselves are for a machine of one's own.
OUT_S_MAX = 40.0


def test_no_stream_is_lost_or_miscounted_while_replicas_are_killed_noticed_and_stopped(home: Home) -> None:
    campaign = Campaign(kills=3, notices=3, stops=2, seed=3, streams=6, tokens_max=3000)
    report = survive(home, campaign)
    shown = "\n".join(report.lines())
    assert not report.faults, shown
    assert not [stream for stream in report.streams if stream.fault], shown
    assert {stream.lane for stream in report.streams} == set(LANES)
    assert sum(stream.tokens > 1500 for stream in report.streams) > 3  # longer than any buffer of events would be
    assert max(seconds for name in ("stop process", "stop engine") for seconds in report.out_s[name]) < OUT_S_MAX, shown
