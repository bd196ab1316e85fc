"""Answers that are being generated, as somebody asks for them: one that does not stop is not among those that ended."""

from __future__ import annotations

import heapq
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.client_label import client_label
from fleetctl.model.request_trace import RunningAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.model.request_trace import TraceQuery


def running_answers(
    active: Iterable[ActiveRequest], query: TraceQuery, *, now: datetime, now_s: float
) -> tuple[RunningAnswer, ...]:
    """Return the longest streams of the query's lane that are under way, so many as it wants at most; `now_s` is the clock that they were timed by.

    How long one is that is answered whole, nobody knows before its end.
    """
    if query.running <= 0:
        return ()
    found = (
        each
        for each in active
        if each.stopwatch.token_count and each.attempt is not None and query.lane in ("", each.lane.route.name)
    )
    longest = heapq.nlargest(query.running, found, key=lambda each: each.stopwatch.token_count)
    return tuple(
        RunningAnswer(
            id=each.id.decode(),
            lane=each.lane.route.name,
            client=client_label(each.client, each.client_name),
            replica=each.attempt.replica_id if each.attempt is not None else "",
            at=now - timedelta(seconds=now_s - each.stopwatch.started_s),
            total_s=now_s - each.stopwatch.started_s,
            output_tokens=each.stopwatch.token_count,
        )
        for each in longest
    )
