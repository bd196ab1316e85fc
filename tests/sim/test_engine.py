"""The fast-forwarded engine against the emulator's scheduler, which takes every step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fleetctl.core.perf.sequence_kv import SequenceKv
from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.sim.engine import SimulatedEngine
from fleetctl.sim.event_heap import EventHeap
from fleetctl.sim.gap_counter import GapCounter
from fleetctl.sim.limits import EngineLimits
from fleetctl.sim.sequence import SimulatedSequence
from fleetctl_emulator.scheduler import Order, Scheduler, SchedulerLimits
from fleetctl_emulator.sequence import Sequence, SequenceStatus
from fleetctl_emulator.tokens import AnswerText, Prompt
from tests.emulator.engine_bench import MODEL_8B_L40S

GAP_LIMIT_S = 0.03
SLO = LaneSlo(targets=(LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=GAP_LIMIT_S),))


@dataclass(frozen=True)
class Job:
    at_s: float
    prompt: int
    output: int
    abort_at_s: float | None = None
    priority: int = 0


@dataclass
class Timing:
    first_s: float | None = None
    end_s: float | None = None
    gaps_over: int = 0


@dataclass
class NotedSink:
    """A sink that notes what it hears, and when."""

    timing: Timing = field(default_factory=Timing)
    sequence: SimulatedSequence | None = None

    def first_token(self, now_s: float) -> None:
        assert self.timing.first_s is None
        self.timing.first_s = now_s

    def finished(self, now_s: float) -> None:
        assert self.timing.end_s is None
        assert self.sequence is not None
        self.timing.end_s = now_s
        self.timing.gaps_over = self.sequence.gaps_over

    def heard(self, now_s: float) -> None:
        raise AssertionError("nobody sweeps here")

    def lost(self) -> None:
        raise AssertionError("no engine ends here")


def stepped(  # noqa: C901  # arrivals, aborts and steps in order of time
    limits: EngineLimits, jobs: list[Job]
) -> tuple[list[Timing], int]:
    """Take every step by the emulator's scheduler."""
    scheduler = Scheduler(
        SchedulerLimits(
            max_num_seqs=limits.max_num_seqs, max_num_batched_tokens=limits.max_num_batched_tokens,
            kv_blocks=limits.kv_blocks, prefix_caching=False, reserves_output=limits.reserves_output, order=Order.LOW_FIRST,
            sequence_kv=limits.sequence_kv,
        ),
        MODEL_8B_L40S.step_s,
    )  # fmt: skip
    events = sorted(
        [(job.at_s, 0, n) for n, job in enumerate(jobs)]
        + [(job.abort_at_s, 1, n) for n, job in enumerate(jobs) if job.abort_at_s is not None]
    )
    timings, now = [Timing() for _ in jobs], 0.0
    sequences: dict[int, Sequence] = {}
    ends_s: float | None = None
    while True:
        next_s = events[0][0] if events else float("inf")
        if ends_s is not None and ends_s < next_s:
            now = ends_s
        elif events:
            now = next_s
            while events and events[0][0] <= now:
                _, is_abort, n = events.pop(0)
                if is_abort:
                    scheduler.abort(sequences[n])
                    continue
                job = jobs[n]
                sequences[n] = Sequence(
                    number=len(sequences), prompt=Prompt(b"0000" * job.prompt), answer=AnswerText("0"),
                    output_tokens=job.output, arrived_s=now, priority=job.priority,
                )  # fmt: skip
                scheduler.add(sequences[n])
            if ends_s is not None and ends_s > now:
                continue
        else:
            return timings, scheduler.preemptions
        result = scheduler.step(now)
        for sequence in result.sampled:
            n = next(n for n, each in sequences.items() if each is sequence)
            if timings[n].first_s is None:
                timings[n].first_s = now
            elif now - sequence.previous_token_s > GAP_LIMIT_S + 1e-12:
                timings[n].gaps_over += 1
            if sequence.status is SequenceStatus.FINISHED:
                timings[n].end_s = now
        ends_s = now + result.duration_s if result.duration_s is not None else None


def fast_forwarded(limits: EngineLimits, jobs: list[Job]) -> tuple[list[Timing], SimulatedEngine, LaneAccounts]:
    heap = EventHeap()
    engine = SimulatedEngine(heap, MODEL_8B_L40S, limits)
    accounts = LaneAccounts(SLO, now_s=0.0)
    counter = engine.gap_counters["chat"] = GapCounter(accounts)
    sinks = [NotedSink() for _ in jobs]

    def add(n: int) -> None:
        sequence = sinks[n].sequence = SimulatedSequence(
            sinks[n], jobs[n].prompt, jobs[n].output, gap_counter=counter, priority=jobs[n].priority
        )
        engine.add(sequence)

    def abort(n: int) -> None:
        sequence = sinks[n].sequence
        assert sequence is not None
        engine.abort(sequence)

    for n, job in enumerate(jobs):
        heap.at(job.at_s, partial(add, n))
        if job.abort_at_s is not None:
            heap.at(job.abort_at_s, partial(abort, n))
    heap.run(1e6)
    return [each.timing for each in sinks], engine, accounts


def check_same(limits: EngineLimits, jobs: list[Job]) -> SimulatedEngine:
    expected, _ = stepped(limits, jobs)
    found, engine, accounts = fast_forwarded(limits, jobs)
    for n, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert (a.first_s is None) == (b.first_s is None), f"job {n}"
        assert a.first_s == pytest.approx(b.first_s, rel=1e-9) if a.first_s is not None else True, f"job {n}"
        assert (a.end_s is None) == (b.end_s is None), f"job {n}"
        assert a.end_s == pytest.approx(b.end_s, rel=1e-9) if a.end_s is not None else True, f"job {n}"
        if a.end_s is not None:
            assert a.gaps_over == b.gaps_over, f"job {n}"
    assert not engine.running
    assert not engine.waiting
    assert engine.kv_usage == 0.0
    if not any(job.abort_at_s for job in jobs):
        assert accounts.windows.lifetime().itl.count == sum(job.output - 1 for job in jobs)
        assert engine.output_tokens == sum(job.output for job in jobs)
    return engine


job = st.builds(
    Job,
    at_s=st.floats(0, 4).map(lambda s: round(s, 3)),
    prompt=st.integers(1, 400),
    output=st.integers(1, 150),
)
of_a_tier = st.builds(
    Job,
    at_s=st.floats(0, 4).map(lambda s: round(s, 3)),
    prompt=st.integers(1, 400),
    output=st.integers(1, 150),
    priority=st.integers(0, 2),
)
thorough = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(
    limits=st.builds(
        EngineLimits,
        max_num_seqs=st.integers(1, 16),
        max_num_batched_tokens=st.integers(16, 300),
        kv_blocks=st.integers(35, 120),
        reserves_output=st.booleans(),
    ),
    jobs=st.one_of(st.lists(job, min_size=1, max_size=30), st.lists(of_a_tier, min_size=1, max_size=30)),
)
def test_fast_forwarding_gives_what_taking_every_step_gives(limits, jobs):
    check_same(limits, jobs)


@thorough
@given(
    jobs=st.lists(
        st.builds(
            lambda at_s, prompt, output, after_s: Job(at_s, prompt, output, None if after_s is None else at_s + after_s),
            st.floats(0, 4).map(lambda s: round(s, 3)), st.integers(1, 400), st.integers(1, 150),
            st.one_of(st.none(), st.floats(0.0005, 3).map(lambda s: round(s, 4))),
        ),
        min_size=1, max_size=20,
    ),
)  # fmt: skip
def test_aborted_sequences_leave_as_they_do_there(jobs):
    check_same(EngineLimits(max_num_seqs=8, max_num_batched_tokens=64, kv_blocks=60), jobs)


def test_a_crowded_cache_preempts_as_often():
    dice = random.Random(5)
    jobs = [Job(round(dice.uniform(0, 2), 3), dice.randrange(20, 300), dice.randrange(60, 160)) for _ in range(60)]
    limits = EngineLimits(max_num_seqs=16, max_num_batched_tokens=128, kv_blocks=64)
    engine = check_same(limits, jobs)
    assert engine.preemptions > 5


def test_windows_and_states_take_as_many_blocks_in_both():
    dice = random.Random(7)
    jobs = [Job(round(dice.uniform(0, 2), 3), dice.randrange(20, 300), dice.randrange(60, 160)) for _ in range(60)]
    plain = EngineLimits(max_num_seqs=16, max_num_batched_tokens=128, kv_blocks=160)
    kept = SequenceKv(window_tokens=100, window_share=1.5, constant_tokens=70.0)
    # Fewer are admitted at a time, so there are more steps.
    assert check_same(replace(plain, sequence_kv=kept), jobs).steps > check_same(plain, jobs).steps


def test_by_priority_the_highest_is_admitted_first_and_the_lowest_preempted():
    dice = random.Random(6)
    jobs = [
        Job(round(dice.uniform(0, 2), 3), dice.randrange(20, 300), dice.randrange(60, 160), priority=number % 3)
        for number in range(60)
    ]
    limits = EngineLimits(max_num_seqs=16, max_num_batched_tokens=128, kv_blocks=64)
    engine = check_same(limits, jobs)
    assert engine.preemptions > 5
    found, _, _ = fast_forwarded(limits, jobs)
    waits_s = [
        max((each.first_s or 0.0) - job.at_s for each, job in zip(found, jobs, strict=True) if job.priority == rank)
        for rank in range(3)
    ]
    assert waits_s[0] < waits_s[1] < waits_s[2]
