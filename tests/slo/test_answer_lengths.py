"""How long answers are is told by those that finished, whatever runs beside them."""

from __future__ import annotations

import pytest

from fleetctl.core.demand import mean_lengths
from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.model.gateway import LaneSnapshot
from fleetctl.model.slo import LaneSlo

ANSWER_TOKENS = 100
TOKEN_S = 0.1


def lane_after(seconds: float, *, gap_s: float) -> LaneSnapshot:
    """A lane that a request enters every `gap_s`, twice as often from halfway on, each answered at ten tokens a second."""
    accounts = LaneAccounts(LaneSlo(targets=()), now_s=0.0)
    running: dict[RequestStopwatch, int] = {}
    next_s, now_s = 0.0, 0.0
    while now_s < seconds:
        if now_s >= next_s:
            running[RequestStopwatch(accounts, now_s)] = 0
            next_s += gap_s if now_s < seconds / 2 else gap_s / 8
        for watch in list(running):
            watch.tokens(now_s, 1)
            running[watch] += 1
            if running[watch] == ANSWER_TOKENS:
                del running[watch]
                watch.stop(now_s, Ending.COMPLETE, is_stream=True, prompt_tokens=50, output_tokens_uncounted=0)
        now_s += TOKEN_S
    windows = accounts.snapshot(now_s)
    return LaneSnapshot(name="chat", in_flight=len(running), queued=0, oldest_wait_s=0.0, windows=windows)


def test_while_load_rises_a_request_does_not_seem_longer_than_it_is():
    lane = lane_after(40.0, gap_s=0.5)
    window = lane.window(300.0)
    assert window.output_tokens > 1.2 * ANSWER_TOKENS * window.finished
    lengths = mean_lengths(lane)
    assert lengths is not None
    assert (lengths.prompt_tokens, lengths.output_tokens) == (50, ANSWER_TOKENS)


@pytest.mark.parametrize(("streamed", "uncounted"), [(0, 80), (30, 50), (30, -5)])
def test_tokens_that_were_not_counted_as_they_came_are_the_answers_own(streamed: int, uncounted: int) -> None:
    accounts = LaneAccounts(LaneSlo(targets=()), now_s=0.0)
    watch = RequestStopwatch(accounts, 0.0)
    for number in range(streamed):
        watch.tokens(0.1 * number, 1)
    watch.stop(9.0, Ending.COMPLETE, is_stream=bool(streamed), prompt_tokens=1, output_tokens_uncounted=uncounted)
    window = accounts.snapshot(9.0)[0]
    assert window.finished_output_tokens == window.output_tokens == streamed + max(0, uncounted)
