"""A simulated replica of several data parallel ranks is that many engines, and ends as one."""

from __future__ import annotations

from fleetctl.sim.engine import SimulatedEngine
from fleetctl.sim.event_heap import EventHeap
from fleetctl.sim.limits import EngineLimits
from fleetctl.sim.ranks import SimulatedRanks
from fleetctl.sim.sequence import SimulatedSequence
from tests.emulator.engine_bench import MODEL_8B_L40S
from tests.sim.test_engine import NotedSink

LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, kv_blocks=400, reserves_output=False)


def served(ranks: int, requests: int) -> tuple[SimulatedRanks, list[NotedSink], float]:
    """Serve requests that come together; return the replica, who heard what, and when the last one ended."""
    heap = EventHeap()
    replica = SimulatedRanks([SimulatedEngine(heap, MODEL_8B_L40S, LIMITS) for _ in range(ranks)])
    sinks = [NotedSink() for _ in range(requests)]
    for sink in sinks:
        sink.sequence = SimulatedSequence(sink, prompt_tokens=300, output_tokens=50)
        replica.rank().add(sink.sequence)
    heap.run(60.0)
    return replica, sinks, max(sink.timing.end_s or 60.0 for sink in sinks)


def test_requests_are_shared_out_evenly_and_all_are_served() -> None:
    replica, sinks, _ = served(4, 16)
    assert all(sink.timing.end_s is not None for sink in sinks)
    assert {rank.output_tokens for rank in replica.ranks} == {4 * 50}
    assert replica.output_tokens == 16 * 50
    assert replica.steps == sum(rank.steps for rank in replica.ranks)


def test_as_many_ranks_serve_as_much_sooner_and_hold_as_many_more() -> None:
    (_, _, alone_s), (_, _, together_s) = served(1, 32), served(4, 32)
    assert together_s < alone_s / 3


def test_all_ranks_go_with_the_process() -> None:
    heap = EventHeap()
    replica = SimulatedRanks([SimulatedEngine(heap, MODEL_8B_L40S, LIMITS) for _ in range(2)])
    sequences = [SimulatedSequence(NotedSink(), prompt_tokens=300, output_tokens=50) for _ in range(12)]
    for sequence in sequences:
        replica.rank().add(sequence)
    heap.run(0.2)
    assert [(len(rank.running), len(rank.waiting)) for rank in replica.ranks] == [(4, 2), (4, 2)]
    assert 0 < replica.kv_usage <= 1
    assert {id(each) for each in replica.end()} == {id(each) for each in sequences}
    assert all(rank.is_dead for rank in replica.ranks)
