"""The priority an engine reads is that of the request's tier, whatever the client wrote."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from fleetctl.gateway.priorities import with_priority
from fleetctl.model.tiers import TierSpec, route_tiers
from tests.gateway.rig import CHAT, GatewayRig

MESSAGES = [{"role": "user", "content": "what is \u00e9?"}]

bodies = st.fixed_dictionaries(
    {"messages": st.just(MESSAGES)},
    optional={
        "service_tier": st.just("priority"),
        "temperature": st.floats(0, 2),
        "priority": st.one_of(
            st.integers(), st.text(), st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
        ),
    },
)


@given(body=bodies, rank=st.integers(0, 9), sign=st.sampled_from([1, -1]), is_ascii=st.booleans())
def test_nobody_goes_before_their_tier_and_all_else_stays(body, rank, sign, is_ascii):
    sent = json.loads(with_priority(json.dumps(body, ensure_ascii=is_ascii).encode(), rank, sign))
    own, written = body.get("priority"), sent.pop("priority")

    assert type(written) is int
    assert written * sign >= rank, "its tier's, or behind it"
    if type(own) is int and rank <= own * sign < 2**31:
        assert written == own, "a client may put its own request back"
    elif type(own) is not int or own * sign < rank:
        assert written == sign * rank
    assert sent == {key: value for key, value in body.items() if key != "priority"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"\\u0070riority": -9, "prompt": "x"}', b'{"prompt": "x", "priorit\\u0079": -9}', b' { "priority" : -9 ,"prompt": "x"}',
        b'{"priority": 5, "prompt": "x", "priority": -9}', b'{"prompt": "\\u0070", "priority": "-9"}',
    ],
)  # fmt: skip
def test_no_spelling_of_the_key_gets_past(body):
    assert json.loads(with_priority(body, 2, 1)) | {"prompt": "x"} == {"prompt": "x", "priority": 2}


def test_a_body_without_anything_stays_valid():
    assert json.loads(with_priority(b"{ }", 1, -1)) == {"priority": -1}


TIERS = route_tiers([TierSpec(name="premium"), TierSpec(name="standard"), TierSpec(name="free")])


@pytest.mark.parametrize(
    ("sign", "tier", "own", "sent"),
    [
        (1, "free", None, 2), (1, "premium", None, 0), (1, "free", -5, 2), (1, "standard", 7, 7),
        (-1, "free", None, -2), (-1, "free", 5, -2), (-1, "premium", 100, 0),
        (0, "free", None, None), (0, "free", 5, 5),  # as the client wrote it: its engine does not look at it
    ],
)  # fmt: skip
async def test_an_engine_is_told_the_tier_as_it_reads_priorities(sign, tier, own, sent):
    async with GatewayRig(lanes=(replace(CHAT, tier=tier),), options={"tiers": TIERS}) as rig:
        await rig.add("r1", priority_sign=sign)
        given = {} if own is None else {"priority": own}
        answer = await rig.post(**given)
        assert answer.status == 200
        assert rig.replicas[0].seen[-1].body.get("priority") == sent


async def test_without_tiers_a_priority_is_passed_on_as_it_came():
    async with GatewayRig() as rig:
        await rig.add("r1", priority_sign=1)
        await rig.post(priority=-5)
        assert rig.replicas[0].seen[-1].body["priority"] == -5
