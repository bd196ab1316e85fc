"""What speaks against a replica in rotation: a stall, a missed canary, silence beside a dead /health."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.core.engine_load import with_rates
from fleetctl.core.reconcile.health import is_beyond_doubt, unhealthy_reason
from fleetctl.model.observation import EngineSignals
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.slo import Validity
from tests.reconcile.worlds import EPOCH, observed

LIMIT_S = 4.0


def engine(running: int = 3, *, stalled_s: float = 0.0, validity: Validity = Validity.OK) -> EngineSignals:
    return EngineSignals(validity=validity, at=EPOCH, running=running, output_tokens=500.0, stalled_s=stalled_s)


def judge(**view: Any) -> Reason | None:
    return unhealthy_reason(observed("r1", **view), unhealthy_since=None, now=EPOCH, stall_limit_s=LIMIT_S)


@pytest.mark.parametrize(
    ("view", "code"),
    [
        ({"engine": engine(stalled_s=4.0)}, ReasonCode.STALLED),
        ({"engine": engine(stalled_s=3.9)}, None),
        # The gateway's word counts once two readings bear it out, and not without.
        ({"engine": engine(stalled_s=1.0), "silent_s": 4.5}, ReasonCode.STALLED),
        ({"engine": engine(stalled_s=0.0), "silent_s": 50.0}, None),
        # A lawful long prompt.
        ({"engine": engine(stalled_s=12.0), "silent_s": 12.0, "prefill_allowance_s": 15.0}, None),
        ({"engine": engine(stalled_s=20.0), "silent_s": 20.0, "prefill_allowance_s": 15.0}, ReasonCode.STALLED),
        # An answer of which the gateway hears is slow at most: some engines count its tokens at its end.
        ({"engine": engine(stalled_s=20.0), "unheard_s": 0.3}, None),
        ({"engine": engine(stalled_s=20.0), "unheard_s": 4.1}, ReasonCode.STALLED),
        # Figures that are no figures.
        ({"engine": engine(stalled_s=50.0, validity=Validity.STALE), "silent_s": 50.0}, None),
        ({"engine": engine(stalled_s=50.0, validity=Validity.INVALID)}, None),
        # Nothing runs, and a completion was not answered; or something ran after all.
        ({"engine": engine(0), "canary_missed_s": 4.0}, ReasonCode.STALLED),
        ({"engine": engine(1), "canary_missed_s": 4.0}, None),
        # Neither /health nor anything else answers.
        ({"engine": engine(0), "healthy": False, "silent_s": 4.1}, ReasonCode.UNHEALTHY),
        ({"engine": engine(0), "healthy": False, "silent_s": 3.0}, None),
        ({"engine": engine(0), "is_stalled": True}, ReasonCode.STALLED),
        ({"engine": engine(0), "consecutive_failures": 3}, ReasonCode.UNHEALTHY),
        # Errors may be the clients' own doing, unless a completion of ours draws one too.
        ({"engine": engine(0), "errors_in_a_row": 50}, None),
        ({"engine": engine(1), "errors_in_a_row": 3, "canary_error": "answered 500"}, ReasonCode.UNHEALTHY),
        ({"engine": engine(1), "errors_in_a_row": 2, "canary_error": "answered 500"}, None),
    ],
)
def test_a_replica_is_judged_by_what_it_does_not_by_its_routes(view, code):
    found = judge(**view)
    assert (found.code if found else None) is code


def reading(seconds: float, tokens: float, *, running: int = 1, prompt_tokens: float = 90.0) -> EngineSignals:
    return EngineSignals(
        validity=Validity.OK,
        at=EPOCH + timedelta(seconds=seconds),
        running=running,
        prompt_tokens=prompt_tokens,
        output_tokens=tokens,
    )


def stalled_s(*readings: EngineSignals) -> float:
    last = EngineSignals()
    for each in readings:
        last = with_rates(last, each)
    return last.stalled_s


def test_an_engine_stands_still_while_it_runs_requests_and_counts_no_token():
    assert stalled_s(reading(0, 5), reading(5, 9), reading(6, 9), reading(7, 9)) == pytest.approx(2.0)
    assert stalled_s(reading(0, 5), reading(5, 5), reading(6, 6)) == 0.0
    assert stalled_s(reading(0, 5), reading(5, 5, prompt_tokens=300)) == 0.0
    assert stalled_s(reading(0, 5, running=0), reading(5, 5, running=0)) == 0.0
    assert stalled_s(reading(0, 5), reading(5, 2)) == 0.0
    assert stalled_s(reading(0, 0, prompt_tokens=0), reading(5, 0, prompt_tokens=0)) == 0.0
    moving = msgspec.structs.replace(reading(5, 9), steps=12.0), msgspec.structs.replace(reading(10, 9), kv_usage=0.4)
    assert stalled_s(reading(0, 9), *moving, reading(15, 9)) == 0.0
    unfit = msgspec.structs.replace(reading(5, 9), validity=Validity.INVALID)
    assert stalled_s(reading(0, 9), unfit, reading(10, 9)) == 0.0


@given(
    st.fixed_dictionaries(
        {
            "healthy": st.sampled_from([True, False, None]),
            "is_stalled": st.booleans(),
            "consecutive_failures": st.integers(0, 6),
            "errors_in_a_row": st.integers(0, 6),
            "canary_missed_s": st.sampled_from([0.0, 9.0]),
            "canary_error": st.sampled_from(["", "500"]),
            "silent_s": st.sampled_from([0.0, 60.0]),
            "engine": st.builds(engine, st.integers(0, 1), stalled_s=st.sampled_from([0.0, 0.5, 60.0])),
        }
    )
)
def test_nothing_speaks_against_a_replica_that_is_beyond_doubt(view: dict[str, Any]) -> None:
    assert judge(**view) is None or not is_beyond_doubt(observed("r1", **view))
