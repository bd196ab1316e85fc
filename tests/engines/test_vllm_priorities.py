"""A real vLLM on CPU that is launched to schedule by priority, as the lanes of a profile with tiers are."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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
SEQS_MAX = 2
WAIT_S = 60.0
# As long as half a second's tokens: which of the two ended first is then no matter of which thread was woken first.
TOKENS = 400
PROMPT = {"model": "tiny", "prompt": "the quick", "temperature": 0, "ignore_eos": True}


def test_the_higher_tier_that_came_later_is_served_before_the_lower_one(tmp_path: Path) -> None:
    with running_vllm(tmp_path, priority_scheduling=True, max_num_seqs=SEQS_MAX) as engine:
        path, warm_body = VllmEngine().warm_body(served_name="tiny")
        engine.post(path, content=warm_body, headers={"content-type": "application/json"})
        for _attempt in range(ATTEMPTS):
            order = served_in_order(engine)
            if order is not None:
                assert order == ["high", "low"]
                return
    pytest.fail("the one before was always over too soon")


def served_in_order(engine: httpx.Client) -> list[str] | None:
    """Return in which order two that wait were served, the low one the first to come. None: they did not wait together."""
    ended: list[str] = []

    def complete(name: str, rank: int) -> None:
        body = json.dumps(PROMPT | {"max_tokens": TOKENS}).encode()
        answer = engine.post(
            "/v1/completions", content=with_priority(body, rank, 1), headers={"content-type": "application/json"}
        )
        assert answer.status_code == 200, answer.text
        ended.append(name)

    with ThreadPoolExecutor(2) as others, ExitStack() as taken:
        # Of different lengths: the other slot is not free before the first of those who wait has ended.
        bodies = [PROMPT | {"stream": True, "max_tokens": 1900 - 800 * number} for number in range(SEQS_MAX)]
        streams = [taken.enter_context(engine.stream("POST", "/v1/completions", json=body)) for body in bodies]
        answers = [others.submit(complete, "low", 2)]
        waited = wait_for_waiting(engine, 1)
        answers.append(others.submit(complete, "high", 0))
        waited = waited and wait_for_waiting(engine, 2)
        for stream in streams:
            stream.read()
        for each in answers:
            each.result(timeout=WAIT_S)
    return ended if waited else None


def wait_for_waiting(engine: httpx.Client, count: int) -> bool:
    """Wait until so many requests wait in the engine; False: it has become idle before."""
    adapter, until_s = VllmEngine(), SYSTEM_CLOCK.monotonic_s() + WAIT_S
    while SYSTEM_CLOCK.monotonic_s() < until_s:
        seen = adapter.signals(engine.get(adapter.metrics_path).text)
        if seen.waiting >= count:
            return True
        if not seen.running and not seen.waiting:
            return False
        SYSTEM_CLOCK.sleep_blocking(0.01)
    return False
