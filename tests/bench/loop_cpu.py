"""Prints what watching for loops costs a chunk: python -m tests.bench.loop_cpu [--rounds 30]

The relay alone, without sockets: streams of 4,000 chunks of one token, once watched and once not, turn about, so that
whatever else the machine does disturbs both; the median of the differences and of the ratios is printed, in CPU time of the process. `kept` streams are
those whose text is kept for a continuation (vLLM, SGLang), with the engine's counts or without; of the others only the last is held. Events
with logprobs differ by more than their text, and have no shape that could be told at once.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.gateway.limits import GatewayLimits
from fleetctl.gateway.loop_watch import LoopWatch
from fleetctl.gateway.transcript import Transcript
from fleetctl.gateway.usage import SHOWS_NONE
from fleetctl.gateway.watched_relay import relay_of
from tests.repetition.texts import RIGHTFUL, looping, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNKS = 4000
LIMITS = GatewayLimits()
CASES = (
    (True, True, False),
    (True, False, False),
    (False, False, False),
    (False, False, True),
)  # kept, counted, logprobs


def events_of(words: list[str], *, counted: bool, logprobs: bool = False) -> list[bytes]:
    """Return a stream's events as vLLM writes them."""
    found = []
    for place, word in enumerate(words, start=1):
        event = {
            "id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1700000000, "model": "m",
            "choices": [{"index": 0, "delta": {"content": word}, "logprobs": None, "finish_reason": None}],
        }  # fmt: skip
        if logprobs:
            chosen = {"token": word, "logprob": -place / 7, "bytes": list(word.encode()), "top_logprobs": []}
            event["choices"][0]["logprobs"] = {"content": [chosen]}  # type: ignore[index]  # as made above
        if counted:
            event["usage"] = {"prompt_tokens": 412, "total_tokens": 412 + place, "completion_tokens": place}
        found.append(b"data: " + msgspec.json.encode(event) + b"\n\n")
    return found


def answer(make: Callable[[random.Random], str], rng: random.Random) -> list[str]:
    """Return so many tokens of a kind of text, one answer after the other."""
    words: list[str] = []
    while len(words) < CHUNKS:
        words += tokens(make(rng) + "\n", rng)
    return words[:CHUNKS]


def cpu_s(events: list[bytes], *, watched: bool, kept: bool, counted: bool) -> float:
    """Return the CPU time that a relay takes for these events."""
    request = SimpleNamespace(
        loop=None, heard_s=0.0, lane=SimpleNamespace(accounts=SimpleNamespace(looped=lambda _: None))
    )
    watch = LoopWatch(request, stops=False) if watched else None  # type: ignore[arg-type]  # all that it touches of one
    transcript = Transcript(64 * CHUNKS) if kept else None
    relay = relay_of(LIMITS, watch, transcript=transcript, is_counted=counted, shown=SHOWS_NONE)
    feed = relay.feed
    began_s = time.process_time()
    for event in events:
        feed(event)
    return time.process_time() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    texts = {
        kind: answer(RIGHTFUL[kind], random.Random(1))
        for kind in ("prose", "code", "table", "json_objects", "cjk", "encoded")
    }
    texts["a loop"] = looping("sentences", random.Random(1), tokens_repeated=CHUNKS)[0][:CHUNKS]
    texts["a loop of data"] = looping("row", random.Random(1), tokens_repeated=CHUNKS)[0][:CHUNKS]
    gc.disable()
    print(
        f"{'':16}{'kept, counted':>22}{'kept':>22}{'not kept':>22}{'not kept, logprobs':>22}   us a chunk: added (without)"
    )
    for name, words in texts.items():
        line = f"{name:16}"
        for kept, counted, logprobs in CASES:
            events = events_of(words, counted=counted, logprobs=logprobs)
            added, plain = [], []
            for place in range(rounds):
                order = (True, False) if place % 2 else (False, True)
                took = {watched: cpu_s(events, watched=watched, kept=kept, counted=counted) for watched in order}
                added.append(took[True] - took[False])
                plain.append(took[False])
            per_chunk = [1e6 * statistics.median(each) / len(words) for each in (added, plain)]
            line += f"{per_chunk[0]:12.3f} ({per_chunk[1]:.3f})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
