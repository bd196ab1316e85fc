"""What must hold whatever arrives, and what the known situations must look like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fleetctl_emulator.blocks import BLOCK_TOKENS
from fleetctl_emulator.scheduler import Order, Scheduler, SchedulerLimits, StepResult
from fleetctl_emulator.sequence import Sequence, SequenceStatus
from fleetctl_emulator.timing import JITTER
from tests.emulator.engine_bench import MODEL_8B_L40S, Arrival, Bench, limits, prompt_of

KV_BLOCKS = 24

arrival = st.builds(
    Arrival,
    at_s=st.floats(0, 2).map(lambda s: round(s, 3)),
    prompt=st.builds(prompt_of, st.integers(1, 180), topic=st.integers(0, 3)),
    output_tokens=st.integers(1, 100),
    priority=st.integers(-2, 2),
    abort_at_s=st.one_of(st.none(), st.none(), st.floats(0, 4)),
)
small_engine = st.builds(
    limits,
    max_num_seqs=st.integers(1, 12),
    max_num_batched_tokens=st.integers(16, 300),
    kv_blocks=st.just(KV_BLOCKS),
    watermark_blocks=st.integers(0, 4),
    order=st.sampled_from(Order),
    prefix_caching=st.booleans(),
)
thorough = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def kv_is_never_oversubscribed(scheduler: Scheduler, result: StepResult) -> None:
    pool = scheduler.pool
    assert 0 <= pool.used <= pool.total
    assert pool.used + pool.free == pool.total
    held = [block for s in scheduler._running for block in s.blocks]
    assert len(set(held)) == pool.used, "a block is held by nobody, or by somebody unknown"
    for sequence in scheduler._running:
        assert sequence.computed <= len(sequence.blocks) * BLOCK_TOKENS
        assert len(set(sequence.blocks)) == len(sequence.blocks)
    for sequence in scheduler._waiting:
        assert sequence.blocks == []


def step_keeps_its_bounds(scheduler: Scheduler, result: StepResult) -> None:
    assert scheduler.running <= scheduler.limits.max_num_seqs
    if result.batch is not None:
        assert result.batch.prefill_tokens + result.batch.decode_seqs <= scheduler.limits.max_num_batched_tokens
        assert result.batch.prefill_tokens + result.batch.decode_seqs > 0


@thorough
@given(engine=small_engine, arrivals=st.lists(arrival, min_size=1, max_size=25))
def test_whatever_arrives_the_cache_holds_and_every_sequence_ends_once(engine, arrivals):
    bench = Bench(engine, checks=[kv_is_never_oversubscribed, step_keeps_its_bounds]).run(arrivals)

    assert all(s.status in (SequenceStatus.FINISHED, SequenceStatus.ABORTED) for s in bench.sequences)
    ends = [s.number for result in bench.results for s in result.sampled if s.status is SequenceStatus.FINISHED]
    last_step_of = {s.number: i for i, result in enumerate(bench.results) for s in result.sampled}
    assert {s.number for s in bench.finished} <= set(ends)
    for sequence in bench.finished:
        assert sequence.generated == sequence.output_tokens
        assert sequence.number in last_step_of
    sampled = sum(len(result.sampled) for result in bench.results)
    assert sampled == sum(s.generated for s in bench.sequences), "tokens were lost or made twice"
    assert bench.scheduler.running == bench.scheduler.waiting == bench.scheduler.pool.used == 0


@thorough
@given(engine=small_engine, arrivals=st.lists(arrival, min_size=1, max_size=25))
def test_preempted_sequences_run_again_and_are_counted_only_then(engine, arrivals):
    bench = Bench(engine).run(arrivals)

    preempted = [s.number for result in bench.results for s in result.preempted]
    resumed = [s.number for result in bench.results for s in result.resumed]
    assert bench.scheduler.preemptions == len(resumed)
    gone = {s.number for s in bench.sequences if s.status is SequenceStatus.ABORTED}
    for number in set(preempted) - gone:
        assert preempted.count(number) == resumed.count(number)
    assert sum(s.preemptions for s in bench.sequences) == len(preempted)


@settings(max_examples=40, deadline=None)
@given(arrivals=st.lists(st.builds(
    Arrival, at_s=st.floats(0, 1), prompt=st.builds(prompt_of, st.integers(1, 180), topic=st.integers(0, 3)),
    output_tokens=st.integers(1, 60),
), min_size=2, max_size=20))  # fmt: skip
def test_first_come_first_served_starves_nobody(arrivals):
    bench = Bench(limits(kv_blocks=KV_BLOCKS, max_num_seqs=4, max_num_batched_tokens=64)).run(arrivals)
    in_order = sorted(bench.sequences, key=lambda s: s.number)
    admitted = [s.scheduled_s for s in in_order]
    assert admitted == sorted(admitted), "a later arrival was admitted before an earlier one"


def test_lone_request_takes_the_time_the_performance_model_says():
    bench = Bench(limits()).run([Arrival(0.0, prompt_of(1000), 101)])
    (sequence,) = bench.sequences
    model = MODEL_8B_L40S
    assert sequence.first_token_s == pytest.approx(model.prefill_s(1000), rel=3 * JITTER)
    decode_s = sum(model.decode_step_s(1, 1000 + made) for made in range(1, 101))
    assert sequence.last_token_s - sequence.first_token_s == pytest.approx(decode_s, rel=JITTER)


def test_long_prompt_beside_it_stretches_the_gaps_of_a_running_answer():
    arrivals = [Arrival(0.0, prompt_of(50, topic=1), 60), Arrival(0.5, prompt_of(6000, topic=2), 2)]
    alone, beside = (Bench(limits()).run(arrivals[:n]).sequences[0] for n in (1, 2))
    assert beside.last_token_s - alone.last_token_s > 0.7 * MODEL_8B_L40S.prefill_s(6000)


def test_running_sequences_decode_in_every_step_while_a_long_prompt_is_computed_in_chunks():
    bench = Bench(limits(max_num_batched_tokens=256)).run(
        [Arrival(0.0, prompt_of(32, topic=1), 60), Arrival(0.2, prompt_of(4000, topic=2), 4)]
    )
    first, second = bench.sequences
    while_prefilling = [r for r in bench.results if second.scheduled_s <= r.at_s < second.first_token_s]
    assert len(while_prefilling) >= 4000 // 256
    assert all(r.batch is not None and r.batch.decode_seqs == 1 for r in while_prefilling)
    assert first.generated == 60


def test_second_prompt_with_the_same_beginning_skips_what_is_cached():
    def ttft(engine: SchedulerLimits) -> tuple[Bench, float]:
        bench = Bench(engine).run([Arrival(0.0, prompt_of(1600), 2), Arrival(5.0, prompt_of(1600), 2)])
        return bench, bench.sequences[1].first_token_s - bench.sequences[1].arrived_s

    with_cache, cached_s = ttft(limits())
    without, computed_s = ttft(limits(prefix_caching=False))
    assert with_cache.sequences[1].cached_tokens == 1584  # the last block is computed, so that a token can be sampled
    assert with_cache.scheduler.prefix_hits == 1584
    assert with_cache.scheduler.prefix_queries == 3200
    assert without.sequences[1].cached_tokens == without.scheduler.prefix_hits == 0
    assert cached_s < computed_s / 2


def test_cached_prefixes_are_evicted_when_the_blocks_are_needed():
    engine = limits(kv_blocks=40)
    bench = Bench(engine, checks=[kv_is_never_oversubscribed]).run(
        [
            Arrival(0.0, prompt_of(400, topic=1), 2),
            Arrival(5.0, prompt_of(400, topic=2), 2),
            Arrival(10.0, prompt_of(400, topic=1), 2),
        ]
    )
    first, other, again = bench.sequences
    assert first.cached_tokens == other.cached_tokens == 0
    assert 0 < again.cached_tokens < 384  # 25 blocks each in a cache of 40: only the older prefix's start is left


def test_preempted_sequence_is_the_latest_and_its_answer_is_not_cut():
    arrivals = [Arrival(0.0, prompt_of(150, topic=t), 120) for t in range(3)]
    roomy = Bench(limits()).run(arrivals)
    tight = Bench(limits(kv_blocks=40, watermark_blocks=0)).run(arrivals)
    victims = [s.number for result in tight.results for s in result.preempted]
    assert victims
    assert victims[0] == 2
    assert roomy.scheduler.preemptions == 0
    assert [s.generated for s in tight.sequences] == [s.generated for s in roomy.sequences] == [120] * 3
    assert tight.sequences[2].last_token_s > roomy.sequences[2].last_token_s


@pytest.mark.parametrize(("order", "first"), [(Order.LOW_FIRST, -1), (Order.HIGH_FIRST, 1), (Order.ARRIVAL, 0)])
def test_priority_decides_who_is_admitted_first(order, first):
    bench = Bench(limits(order=order, max_num_seqs=1)).run(
        [Arrival(0.0, prompt_of(10, topic=t), 5, priority=p) for t, p in enumerate((0, 1, -1))]
    )
    earliest = min(bench.sequences, key=lambda s: s.scheduled_s)
    assert earliest.priority == first


def test_aborted_sequence_gives_its_blocks_back_at_once():
    bench = Bench(limits()).run([])
    scheduler = bench.scheduler
    sequence = Sequence(
        number=0, prompt=prompt_of(100), answer=None, output_tokens=50, arrived_s=0.0  # type: ignore[arg-type]  # not read
    )  # fmt: skip
    scheduler.add(sequence)
    scheduler.step(0.0)
    assert scheduler.pool.used == 7
    scheduler.abort(sequence)
    assert scheduler.pool.used == 0
    assert scheduler.step(1.0).sampled == []
    scheduler.abort(sequence)  # again: nothing happens
    assert sequence.status is SequenceStatus.ABORTED


def busy_hour() -> list[Arrival]:
    return [
        Arrival(i * 0.05, prompt_of(50 + 37 * (i % 40), topic=i % 5), 5 + i % 90, priority=i % 3, abort_at_s=None)
        for i in range(150)
    ]


def test_same_seed_same_log_twice_and_under_two_hash_seeds():
    code = (
        "from tests.emulator.test_scheduler import *\n"
        "import hashlib\n"
        "log = Bench(limits(kv_blocks=300, order=Order.LOW_FIRST), seed=7).run(busy_hour()).log\n"
        "print(len(log), hashlib.sha256('\\n'.join(log).encode()).hexdigest())"
    )
    root = Path(__file__).resolve().parents[2]
    prints = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root), "PATH": ""},
            check=True, capture_output=True, text=True, cwd=root,
        ).stdout
        for seed in ("0", "1", "1")
    }  # fmt: skip
    assert len(prints) == 1
    here = Bench(limits(kv_blocks=300, order=Order.LOW_FIRST), seed=7).run(busy_hour())
    other = Bench(limits(kv_blocks=300, order=Order.LOW_FIRST), seed=8).run(busy_hour())
    assert here.scheduler.preemptions > 0
    assert prints.pop().startswith(str(len(here.log)))
    assert here.log != other.log
