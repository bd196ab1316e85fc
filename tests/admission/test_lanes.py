"""Which lane a request enters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.lanes import LaneChoice
from fleetctl.model.gateway import RouteLane
from fleetctl.model.profile import LaneMatch
from fleetctl.model.slo import LaneSlo


def lane(name: str, max_model_len: int = 0, **match: Any) -> RouteLane:
    return RouteLane(
        name=name,
        match=LaneMatch(**match),
        slo=LaneSlo(targets=()),
        max_wait_s=0.1,
        queue_max=4,
        max_model_len=max_model_len,
    )


SHORT = lane("short", uncached_prompt_tokens_max=512, stream=True)
LONG = lane("long")
BATCH = lane("batch", batch=True)
LANES = (SHORT, LONG, BATCH)


def choose(
    *,
    lanes: tuple[RouteLane, ...] = LANES,
    header: str | None = None,
    batch_hint: bool = False,
    tokens: int = 100,
    stream: bool = True,
) -> str:
    found = LaneChoice(lanes).choose(
        header=header, batch_hint=batch_hint, uncached_prompt_tokens=lambda _: tokens, stream=stream
    )
    return found if isinstance(found, Refusal) else found.name


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, "short"),
        ({"tokens": 511}, "short"),
        ({"tokens": 512}, "long"),
        ({"stream": False}, "long"),
        ({"batch_hint": True}, "batch"),
        ({"header": "batch"}, "batch"),
        ({"header": "short", "tokens": 9000, "batch_hint": True}, "short"),
        ({"header": "nope"}, Refusal.UNKNOWN_LANE),
        ({"lanes": (SHORT,), "tokens": 600}, Refusal.NO_LANE),
        ({"lanes": (SHORT, LONG), "batch_hint": True}, "short"),
        ({"lanes": (BATCH,)}, "batch"),
        ({"lanes": (BATCH, LONG)}, "long"),
        ({"lanes": ()}, Refusal.NO_LANE),
    ],
)
def test_lane_choice(request_, expected):
    assert choose(**request_) == expected


def test_a_prompt_is_short_only_where_it_is_cached():
    cached_in = {"short": 5000, "long": 40}
    short = lane("short", uncached_prompt_tokens_max=512)
    long = lane("long", uncached_prompt_tokens_max=100)
    found = LaneChoice((short, long)).choose(
        header=None, batch_hint=False, uncached_prompt_tokens=cached_in.__getitem__, stream=True
    )
    assert found is long


def test_a_request_its_lane_cannot_hold_goes_to_one_that_can():
    short = lane("short", 4096, uncached_prompt_tokens_max=512)
    tiny, long, batch = lane("tiny", 1024), lane("long", 10_240), lane("batch", 131_072, batch=True)
    choice = LaneChoice((short, tiny, batch, long))
    lanes = [choice.choose_by(100, batch_hint=False, stream=True, request_tokens=n) for n in (4096, 4097, 10_241)]
    assert lanes == [short, long, batch]  # batch last: it may be paused
    assert choice.choose_by(100, batch_hint=False, stream=True, request_tokens=131_073) is Refusal.CONTEXT_LENGTH
    named = choice.choose(
        header="short", batch_hint=False, uncached_prompt_tokens=lambda _: 100, stream=True, request_tokens=4097
    )
    assert named is Refusal.CONTEXT_LENGTH


lengths = st.integers(0, 20)
bounds = st.one_of(st.none(), st.integers(1, 20))
lanes_of = st.lists(
    st.builds(
        lambda held, low, high, stream, batch: (held, low, high, stream, batch),
        lengths, bounds, bounds, st.one_of(st.none(), st.booleans()), st.booleans(),
    ),
    max_size=5,
)  # fmt: skip


@given(lanes_of, lengths, lengths, st.booleans(), st.booleans())
def test_fit_never_costs_a_request_a_lane_and_never_gives_it_one_that_cannot_hold_it(
    rows, tokens, needed, hint, stream
):
    lanes = [
        lane(
            f"l{n}",
            held,
            uncached_prompt_tokens_min=low,
            uncached_prompt_tokens_max=high,
            stream=of_stream,
            batch=batch,
        )
        for n, (held, low, high, of_stream, batch) in enumerate(rows)
    ]
    choice = LaneChoice(lanes)
    regardless = choice.choose_by(tokens, batch_hint=hint, stream=stream)
    found = choice.choose_by(tokens, batch_hint=hint, stream=stream, request_tokens=needed)

    def holds(each: RouteLane) -> bool:
        return not each.max_model_len or needed <= each.max_model_len

    if isinstance(regardless, Refusal):
        assert found is regardless  # of no lane by its match, length or not
    elif holds(regardless):
        assert found is regardless  # length moves nobody who fits
    elif any(holds(each) for each in lanes):
        assert isinstance(found, RouteLane)
        assert holds(found)
    else:
        assert found is Refusal.CONTEXT_LENGTH
