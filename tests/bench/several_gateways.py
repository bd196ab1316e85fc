"""Prints the goodput of one, two and four gateways before the same engines: python -m tests.bench.several_gateways

Four simulated replicas (Llama-3.1-8B in fp8 on an L4, as planned), Poisson arrivals of 1,000-token prompts and 120-token
answers, TTFT P99 2 s, ITL P99 80 ms, at 1, 1.2, 2 and 4 times 8.5 requests a second, of which one gateway serves nearly all in time. Even: each gateway has
its part of the arrivals; skewed: the first has 90 %. An exchange every 0.1 s, as the controller's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gateways.several import Several


def goodput(
    weights: list[float], rps: float, *, seconds: float, seed: int, streams_max: int, exchange_s: float
) -> float:
    rig = Several(weights, seed=seed, streams_max=streams_max, exchange_s=exchange_s)
    rig.run(rps, seconds)
    return rig.good / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rps", type=float, default=8.5)
    parser.add_argument("--streams-max", type=int, default=0)
    parser.add_argument("--exchange-s", type=float, default=0.1)
    arguments = parser.parse_args()
    splits = {
        "1": [1.0], "2 even": [0.5, 0.5], "2 skewed": [0.9, 0.1],
        "4 even": [0.25] * 4, "4 skewed": [0.9, 0.034, 0.033, 0.033],
    }  # fmt: skip
    for load in (1.0, 1.2, 2.0, 4.0):
        one = 0.0
        for name, weights in splits.items():
            found = sum(
                goodput(
                    weights, arguments.rps * load, seconds=arguments.seconds, seed=seed,
                    streams_max=arguments.streams_max, exchange_s=arguments.exchange_s,
                )
                for seed in range(arguments.seeds)
            ) / arguments.seeds  # fmt: skip
            one = one or found
            print(f"{load:g}x  {name:9}  {found:7.2f} good/s  {found / one - 1:+.1%}", flush=True)


if __name__ == "__main__":
    main()
