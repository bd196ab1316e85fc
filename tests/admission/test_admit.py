"""Dispatch, queue or refuse; and what the ladder changes about it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.core.admission.admit import Admission, LaneLoad, admit
from fleetctl.core.admission.drain_rate import ServiceTime, predicted_wait_s
from fleetctl.core.admission.ladder import Degradation, ProbeGate, capped_tokens, degradation_of
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import PromptSize, TokenRatio
from fleetctl.model.gateway import RouteLane
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import LaneMatch
from fleetctl.model.slo import LaneSlo

LANE = RouteLane(
    name="long",
    match=LaneMatch(),
    slo=LaneSlo(targets=()),
    max_wait_s=0.1,
    queue_max=4,
    max_tokens_cap=256,
    context_tokens_cap=4000,
)
BATCH = replace(LANE, name="batch", interruptible=True)
FREE = LaneLoad(queued=0, queue_max=4, max_wait_s=0.1, has_slot=True, drain_rate_rps=None)
BUSY = msgspec.structs.replace(FREE, has_slot=False, drain_rate_rps=100.0)


def at(step: LadderStep, lane: RouteLane = LANE) -> Degradation:
    return degradation_of(replace(lane, step=step))


@pytest.mark.parametrize(
    ("load", "step", "lane", "expected"),
    [
        (FREE, LadderStep.NORMAL, LANE, Admission.DISPATCH),
        (msgspec.structs.replace(FREE, queued=1), LadderStep.NORMAL, LANE, Admission.QUEUE),
        (BUSY, LadderStep.NORMAL, LANE, Admission.QUEUE),
        (msgspec.structs.replace(BUSY, queued=4), LadderStep.NORMAL, LANE, Refusal.QUEUE_FULL),
        (msgspec.structs.replace(BUSY, drain_rate_rps=5.0), LadderStep.NORMAL, LANE, Refusal.PREDICTED_WAIT),
        (msgspec.structs.replace(BUSY, drain_rate_rps=None), LadderStep.NORMAL, LANE, Admission.QUEUE),
        (FREE, LadderStep.PAUSE_BATCH, LANE, Admission.DISPATCH),
        (FREE, LadderStep.PAUSE_BATCH, BATCH, Admission.QUEUE),
        (msgspec.structs.replace(FREE, queued=4), LadderStep.PAUSE_BATCH, BATCH, Refusal.QUEUE_FULL),
        (FREE, LadderStep.SHED, LANE, Admission.DISPATCH),
        (BUSY, LadderStep.SHED, LANE, Refusal.SHED),
        (FREE, LadderStep.BREAKER, LANE, Refusal.BREAKER),
    ],
)
def test_admission(load, step, lane, expected):
    assert admit(load, at(step, lane), prompt_tokens=100, is_probe=False) is expected


def test_an_open_breaker_lets_one_probe_a_second_through():
    gate = ProbeGate()
    assert [gate.lets_through(t) for t in (5.0, 5.5, 5.99, 6.0, 6.1)] == [True, False, False, True, False]
    assert admit(FREE, at(LadderStep.BREAKER), prompt_tokens=100, is_probe=True) is Admission.DISPATCH


def test_a_breaker_on_a_held_lane_sends_no_probe_to_wait_there():
    assert admit(FREE, at(LadderStep.BREAKER, BATCH), prompt_tokens=100, is_probe=True) is Refusal.BREAKER


@given(st.sampled_from(LadderStep), st.sampled_from(LadderStep))
def test_each_step_includes_those_below(one, other):
    low, high = at(min(one, other), BATCH), at(max(one, other), BATCH)
    for name in ("holds_queue", "spills", "sheds_waiting", "breaks"):
        assert getattr(high, name) >= getattr(low, name)
    assert low.max_tokens is None or high.max_tokens == low.max_tokens
    assert (high.context_tokens is not None) >= (low.context_tokens is not None)


@pytest.mark.parametrize("step", LadderStep)
def test_prompts_over_the_cap_are_refused_from_its_step_on(step):
    answer = admit(FREE, at(step), prompt_tokens=4001, is_probe=True)
    assert (answer is Refusal.CAP_CONTEXT) == (step >= LadderStep.CAP_CONTEXT)
    assert admit(FREE, at(step), prompt_tokens=4000, is_probe=True) is Admission.DISPATCH


@pytest.mark.parametrize(
    ("requested", "cap", "sent"), [(None, None, None), (10, None, None), (None, 64, 64), (10, 64, None), (900, 64, 64)]
)
def test_an_answer_is_only_ever_shortened(requested, cap, sent):
    assert capped_tokens(requested, cap) == sent


def test_waiting_is_predicted_from_slots_and_how_long_they_are_held():
    service = ServiceTime()
    assert service.drain_rate_rps(8) is None
    for _ in range(50):
        service.finished(2.0)
    assert service.drain_rate_rps(0) is None
    rate = service.drain_rate_rps(8)
    assert rate == pytest.approx(4.0)
    assert predicted_wait_s(ahead=3, drain_rate_rps=rate) == pytest.approx(1.0)


def test_token_ratio_learns_from_usage():
    ratio = TokenRatio()
    assert ratio.tokens(4000) == 1000
    for _ in range(200):
        ratio.learn(PromptSize(900), prompt_tokens=300)
    assert ratio.tokens(3000) == pytest.approx(1000, rel=0.01)
    ratio.learn(PromptSize(5), prompt_tokens=500)
    ratio.learn(PromptSize(5000), prompt_tokens=0)
    assert ratio.bytes_per_token == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(Refusal.UNKNOWN_LANE, 400), (Refusal.QUEUE_FULL, 429), (Refusal.BREAKER, 429), (Refusal.NO_REPLICA, 503)],
)
def test_overload_is_429_and_only_what_is_broken_is_503(refusal, status):
    assert refusal.status == status
