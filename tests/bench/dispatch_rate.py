"""Prints how many requests a second the dispatch policy decides on one core: python -m tests.bench.dispatch_rate [--requests 40000]

The gateway's own Dispatcher under an event heap: Poisson arrivals at 200 requests per simulated second over three lanes
of two replicas each, streams of a first token and an end, nothing failing. Time is CPU time, the heap's included.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.dispatch.event_heap import CHAT, EventHeap, Fate, HeapExchange, dispatcher_on, route, table

ARRIVALS_RPS = 200.0
LANES = ("short", "long", "batch")


def run(requests: int, seed: int) -> tuple[float, float, int]:
    """Return CPU seconds, simulated seconds, and how many requests were answered."""
    rng = random.Random(seed)
    heap = EventHeap()
    dispatcher = dispatcher_on(heap, seed=seed)
    lanes = tuple(replace(CHAT, name=name) for name in LANES)
    replicas = [route(f"{name}-{i}", name, concurrency_max=64) for name in LANES for i in range(2)]
    dispatcher.apply(table(*replicas, lanes=lanes))
    answered = 0
    left = requests

    def fate(_: str) -> Fate:
        return Fate(0.02, rng.uniform(0.1, 1.0))

    def arrive() -> None:
        nonlocal left
        HeapExchange(heap, dispatcher, fate).submit(LANES[left % 3], prompt_tokens=400)
        left -= 1
        if left:
            heap.at(heap.now_s + rng.expovariate(ARRIVALS_RPS), arrive)

    heap.at(0.0, arrive)
    gc.collect()
    began_s = time.process_time()
    heap.run()
    took_s = time.process_time() - began_s
    for lane in dispatcher.routes.lanes.values():
        answered += lane.accounts.endings["complete"]
    return took_s, heap.now_s, answered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rates = []
    for seed in range(arguments.rounds):
        took_s, simulated_s, answered = run(arguments.requests, seed)
        rates.append(arguments.requests / took_s)
        print(
            f"{arguments.requests:,} requests ({answered:,} answered), {simulated_s:,.0f} simulated seconds,"
            f" in {took_s:.2f} s of CPU: {rates[-1]:,.0f} requests/s"
        )
    print(f"median {statistics.median(rates):,.0f} requests/s, best {max(rates):,.0f}")


if __name__ == "__main__":
    main()
