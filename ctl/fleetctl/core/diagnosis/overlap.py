"""Which requests met which: who waited while whose prompt was computed, at the same replica or in the same queue."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.slo import UNEVEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.model.request_trace import RequestAttempt, RequestTrace

_QUEUED_SHARE = 0.5  # of a wait, in the queue: that is where it waited


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """One prompt at one replica. Times are seconds since the epoch."""

    seq: int
    sent_s: float
    done_s: float  # its first token
    step_s: float  # the longest step it makes for those who stream beside it, as predicted


def attempt_times(trace: RequestTrace) -> Iterator[tuple[RequestAttempt, float, float]]:
    """Yield each attempt with when it was sent and when it was over, in seconds since the epoch."""
    at_s = trace.at.timestamp()
    # One more than attempts where it never was sent.
    ends = [*(each.at_s for each in trace.attempts[1:]), trace.total_s]
    for attempt, end_s in zip(trace.attempts, ends, strict=False):
        yield attempt, at_s + attempt.at_s, at_s + end_s


class Meeting:
    """Some requests, to be asked which others they stood in the way of; `batched_tokens` is the most one step computes."""

    def __init__(self, requests: Iterable[RequestTrace], lane: str, batched_tokens: int) -> None:
        self._prompts: dict[str, list[SentPrompt]] = defaultdict(list)
        self._in_lane: list[tuple[int, float, float]] = []
        for trace in requests:
            at_s = trace.at.timestamp()
            if trace.lane == lane and trace.attempts:
                self._in_lane.append((trace.seq, at_s, at_s + trace.total_s))
            for attempt, sent_s, over_s in attempt_times(trace):
                self._prompts[attempt.replica].append(_prompt(trace, attempt, sent_s, over_s, batched_tokens))

    def delays(self, trace: RequestTrace) -> bool:
        """Whether one of them went before this request, or computed its prompt beside this one's too long gaps."""
        if trace.verdict in UNEVEN:
            return self.lengthens_steps(trace)
        if trace.refusal or _waited_in_queue(trace):
            return self._held_the_lane(trace)
        return any(
            each.sent_s <= sent_s < each.done_s and each.seq != trace.seq
            for attempt, sent_s, _ in attempt_times(trace)
            for each in self._prompts[attempt.replica]
        )

    def lengthens_steps(self, trace: RequestTrace) -> bool:
        """Whether the prompt of one of them takes a step longer than its ITL, at its replica while it streamed."""
        limit_s = trace.gap_limit_s or 0.0
        return any(
            each.step_s >= limit_s and each.sent_s < over_s and each.done_s > sent_s and each.seq != trace.seq
            for attempt, sent_s, over_s in attempt_times(trace)
            for each in self._prompts[attempt.replica]
        )

    def _held_the_lane(self, trace: RequestTrace) -> bool:
        at_s = trace.at.timestamp()
        until_s = at_s + (trace.queue_wait_s if trace.queue_wait_s is not None else trace.total_s)
        return any(since_s <= until_s and over_s > at_s and seq != trace.seq for seq, since_s, over_s in self._in_lane)


def _prompt(
    trace: RequestTrace, attempt: RequestAttempt, sent_s: float, over_s: float, batched_tokens: int
) -> SentPrompt:
    predicted_s = max(0.0, attempt.predicted_ttft_s - attempt.at_s)
    # Of an answer that came whole nobody saw the first token.
    first_s = trace.at.timestamp() + trace.ttft_s if trace.ttft_s is not None else sent_s + predicted_s
    alone_s = predicted_s * attempt.prompt_tokens / max(1, attempt.prompt_tokens + attempt.prompt_tokens_ahead)
    return SentPrompt(
        seq=trace.seq,
        sent_s=sent_s,
        done_s=min(over_s, first_s),
        step_s=alone_s * min(1.0, batched_tokens / max(1, attempt.prompt_tokens)),
    )


def _waited_in_queue(trace: RequestTrace) -> bool:
    waited_s = trace.ttft_s if trace.ttft_s is not None else trace.total_s
    return trace.queue_wait_s is None or trace.queue_wait_s >= _QUEUED_SHARE * waited_s
