"""What requests hold of an engine's KV cache, the most they will, and how long a prompt waits for its part."""

from __future__ import annotations

import math

from hypothesis import given, strategies as st

from fleetctl.core.routing.budget import in_time
from fleetctl.core.routing.candidate import Candidate, PromptLoad
from fleetctl.core.routing.kv_cache import KvCacheLoad, KvShare
from fleetctl.core.routing.usable import usable

REQUESTS = st.lists(st.tuples(st.integers(1, 5_000), st.integers(1, 2_000)), min_size=1, max_size=30)


def look(kv: KvCacheLoad, shares: list[KvShare], now_s: float = 0.0, *, computing_tokens: float = 0.0) -> None:
    kv.look(list(shares), now_s, computing_tokens=computing_tokens)


def most_of(requests: list[tuple[int, int]]) -> int:
    """The most that requests which begin together hold, by generating token after token."""
    ends = sorted({output for _, output in requests})
    return max(sum(prompt + end for prompt, output in requests if output >= end) for end in ends)


@given(REQUESTS)
def test_the_peak_is_what_they_come_to_token_by_token(requests):
    kv = KvCacheLoad(10_000_000)
    shares = [kv.join(prompt, output) for prompt, output in requests]
    look(kv, shares)
    peak = max(most_of(requests), sum(prompt for prompt, _ in requests))
    # What the new one would grow by until the peak is left free as well.
    least, most = peak, peak + max(output for _, output in requests)
    assert 0.96 * 10_000_000 - most - 1 <= kv.free_tokens <= 0.96 * 10_000_000 - least + 1


@given(REQUESTS)
def test_nothing_is_held_once_all_have_ended(requests):
    kv = KvCacheLoad(100_000)
    shares = [kv.join(prompt, output) for prompt, output in requests]
    look(kv, shares)
    for share in shares:
        kv.leave(share)
    assert kv.free_tokens == math.inf


@given(REQUESTS, st.integers(1, 5_000), st.integers(1, 5_000))
def test_a_longer_prompt_never_fits_sooner(requests, tokens, more):
    kv = KvCacheLoad(20_000)
    look(kv, [kv.join(prompt, output) for prompt, output in requests])
    assert kv.wait_s(tokens, 0.0) <= kv.wait_s(tokens + more, 0.0)


def test_a_prompt_waits_until_enough_of_those_resident_have_ended():
    kv = KvCacheLoad(10_000)
    kv.s_per_token = 0.05
    look(kv, [kv.join(4_000, 100), kv.join(4_000, 400)], 10.0)
    assert kv.wait_s(1_000, 10.0) == 0.0
    assert kv.wait_s(5_000, 10.0) == 100 * 0.05
    assert kv.wait_s(5_000, 12.0) == 100 * 0.05 - 2.0
    assert kv.wait_s(9_000, 10.0) == 400 * 0.05
    assert kv.wait_s(11_000, 10.0) == math.inf


def test_what_is_not_known_bounds_nobody():
    kv = KvCacheLoad()
    look(kv, [kv.join(50_000, 1_000) for _ in range(100)])
    assert kv.free_tokens == math.inf


def test_an_engine_that_says_it_is_full_corrects_what_was_planned():
    kv = KvCacheLoad(100_000)
    shares = [kv.join(10_000, 1) for _ in range(4)]
    for second in range(60):
        look(kv, shares, float(second))
        kv.note_usage(0.8, float(second))  # so it has 50,000
    assert kv.wait_s(11_000, 59.0) > 0.0
    assert kv.wait_s(9_000, 59.0) == 0.0


def test_prompts_that_may_not_be_in_the_cache_yet_correct_nothing():
    kv = KvCacheLoad(100_000)
    shares = [kv.join(10_000, 1) for _ in range(4)]
    for second in range(60):
        look(kv, shares, float(second), computing_tokens=20_000.0)
        kv.note_usage(0.3, float(second))  # 20,000 to 40,000 of what is counted
    assert kv.free_tokens == 0.96 * 100_000 - 4 * 10_001 - 1


def test_a_reading_is_compared_with_what_was_counted_then():
    kv = KvCacheLoad(100_000)
    few = [kv.join(10_000, 1) for _ in range(3)]
    look(kv, few, 0.0)
    look(kv, [*few, *[kv.join(10_000, 1) for _ in range(4)]], 5.0)
    before = kv.free_tokens
    kv.note_usage(0.3, 0.5)
    assert kv.free_tokens == before


def replica(name: str, *resident: int) -> Candidate:
    candidate = Candidate(
        id=name, in_rotation=True, concurrency_max=64, prefill_tokens_per_s=10_000.0, kv=KvCacheLoad(50_000)
    )
    look(candidate.kv, [candidate.kv.join(tokens, 100) for tokens in resident])
    candidate.in_flight = len(resident)
    return candidate


def test_a_prompt_goes_where_it_fits_unless_nobody_minds_its_waiting_there():
    full, free = replica("full", 45_000), replica("free", 10_000)
    prompt = PromptLoad(10_000, {})
    assert usable([full, free], now_s=0.0, prompt=prompt) == [free]
    assert usable([full, free], now_s=0.0, prompt=PromptLoad(10_000, {"full": 9_000})) == [full, free]
    assert usable([full, free], now_s=0.0, prompt=prompt, beyond_limit=True) == [full, free]
    assert usable([replica("empty")], now_s=0.0, prompt=PromptLoad(60_000, {}))


def test_the_wait_for_memory_is_part_of_the_predicted_ttft():
    full = replica("full", 45_000)  # for 100 tokens of 30 ms
    prompt = PromptLoad(10_000, {})
    assert in_time([full], prompt, left_s=2.0, line_s_max=math.inf, now_s=0.0) == []
    assert in_time([full], prompt, left_s=10.0, line_s_max=math.inf, now_s=0.0) == [full]
    assert in_time([full], PromptLoad(1_000, {}), left_s=2.0, line_s_max=math.inf, now_s=0.0) == [full]
