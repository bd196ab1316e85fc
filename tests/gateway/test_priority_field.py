"""The priority an engine reads is that of the request's tier, whatever the client wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from fleetctl.gateway.priorities import with_priority

MESSAGES = [{"role": "user", "content": "what is \u00e9?"}]

bodies = st.fixed_dictionaries(
    {"messages": st.just(MESSAGES)},
    optional={
        "service_tier": st.just("priority"),
        "temperature": st.floats(0, 2),
        "priority": st.one_of(st.integers(), st.text(), st.none(), st.booleans(), st.floats(allow_nan=False)),
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
