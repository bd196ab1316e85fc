"""Which lane a request enters."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.lanes import LaneChoice
from fleetctl.model.gateway import RouteLane
from fleetctl.model.profile import LaneMatch
from fleetctl.model.slo import LaneSlo


def lane(name: str, **match: Any) -> RouteLane:
    return RouteLane(name=name, match=LaneMatch(**match), slo=LaneSlo(targets=()), max_wait_s=0.1, queue_max=4)


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
