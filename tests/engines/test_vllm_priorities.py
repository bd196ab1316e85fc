"""A real vLLM on CPU that is launched to schedule by priority, as the lanes of a profile with tiers are."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.gateway.priorities import with_priority
from fleetctl_vllm.engine import VllmEngine
from tests.engines.test_vllm_runs import running_vllm

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

pytestmark = [pytest.mark.engines, pytest.mark.timeout(420)]

ATTEMPTS = 10
WAIT_S = 60.0
HOLD_TOKENS = (1900, 1100)  # of different lengths: the two that wait get their slots one after the other
REQUEST = {"model": "tiny", "temperature": 0, "ignore_eos": True}


def test_the_higher_tier_that_came_later_is_served_before_the_lower_one(tmp_path: Path) -> None:
    with running_vllm(tmp_path, priority_scheduling=True, max_num_seqs=len(HOLD_TOKENS)) as engine:
        path, warm_body = VllmEngine().warm_body(served_name="tiny")
        engine.post(path, content=warm_body, headers={"content-type": "application/json"})
        for attempt in range(ATTEMPTS):
            cached = cached_of_two_that_wait(engine, f"{attempt} " + "the quick brown fox " * 100)
            if cached is not None:
                assert cached["high"] == 0 < cached["low"]
                return
    pytest.fail("those before were always over too soon")


def cached_of_two_that_wait(engine: httpx.Client, prompt: str) -> dict[str, int] | None:
    """Return how many tokens of this new prompt each of two found cached, the low one the first to come.

    The first to be served found none. Which of their answers comes first says nothing: on a busy machine the engine's
    server is seconds behind its own engine, and delivers them in one moment. None: they did not wait together.
    """

    def complete(rank: int) -> int:
        return cached_of(
            engine, with_priority(json.dumps(REQUEST | {"prompt": prompt, "max_tokens": 8}).encode(), rank, 1)
        )

    with ThreadPoolExecutor(len(HOLD_TOKENS) + 2) as clients:
        held = [REQUEST | {"prompt": "the lazy dog", "max_tokens": each} for each in HOLD_TOKENS]
        holding = [clients.submit(cached_of, engine, json.dumps(each).encode()) for each in held]
        waited = wait_until(engine, running=len(HOLD_TOKENS))
        low = clients.submit(complete, 2)
        waited = waited and wait_until(engine, waiting=1)
        high = clients.submit(complete, 0)
        waited = waited and wait_until(engine, waiting=2)
        for each in holding:
            each.result(timeout=WAIT_S)
        cached = {"low": low.result(timeout=WAIT_S), "high": high.result(timeout=WAIT_S)}
    return cached if waited else None


def cached_of(engine: httpx.Client, body: bytes) -> int:
    answer = engine.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    details = answer.json()["usage"]["prompt_tokens_details"]
    return int(details["cached_tokens"] or 0) if details else 0


def wait_until(engine: httpx.Client, *, running: int = 0, waiting: int = 0) -> bool:
    """Wait until so many requests run and wait in the engine; False: they did not in time, or those that ran are over."""
    adapter, until_s = VllmEngine(), SYSTEM_CLOCK.monotonic_s() + WAIT_S
    while SYSTEM_CLOCK.monotonic_s() < until_s:
        seen = adapter.signals(engine.get(adapter.metrics_path).text)
        if seen.running >= running and seen.waiting >= waiting:
            return True
        if waiting and not seen.running and not seen.waiting:
            return False
        SYSTEM_CLOCK.sleep_blocking(0.01)
    return False
