"""Which messages of a chat are cut to fit the context cap."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.admission.context import messages_to_keep

ROLES = st.sampled_from(("system", "developer", "user", "assistant", "tool"))


@pytest.mark.parametrize(
    ("roles", "tokens", "cap", "expected"),
    [
        ("u", [50], 100, [0]),
        ("u", [500], 100, None),
        ("uau", [90, 5, 5], 100, [0, 1, 2]),
        ("uau", [96, 5, 5], 100, [2]),
        ("suau", [10, 96, 5, 5], 100, [0, 3]),
        ("uauau", [40, 40, 40, 40, 10], 100, [2, 3, 4]),
        # The answer of a tool goes with its call, in the last turn it stays.
        ("uatau", [50, 50, 50, 50, 10], 100, [4]),
        ("uauat", [90, 10, 30, 30, 30], 100, [2, 3, 4]),
        # Instructions stay wherever they stand.
        ("uasu", [90, 10, 20, 5], 100, [2, 3]),
        ("au", [90, 50], 100, None),
        ("aauau", [90, 9, 5, 5, 5], 100, [4]),
        ("", [], 100, []),
    ],
)
def test_the_oldest_turns_go_first(roles: str, tokens: list[int], cap: int, expected: list[int] | None) -> None:
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    assert messages_to_keep([names[role] for role in roles], tokens, cap) == expected


@given(st.lists(st.tuples(ROLES, st.integers(0, 400)), max_size=20), st.integers(0, 2000))
def test_what_stays_fits_instructs_and_ends_as_the_chat_did(chat: list[tuple[str, int]], cap: int) -> None:
    roles, tokens = [role for role, _ in chat], [count for _, count in chat]
    kept = messages_to_keep(roles, tokens, cap)
    if kept is None:
        assert sum(tokens) > cap
        return
    assert sum(tokens[place] for place in kept) <= cap
    assert all(place in kept for place, role in enumerate(roles) if role in ("system", "developer"))
    last_user = max((place for place, role in enumerate(roles) if role == "user"), default=len(roles))
    assert all(place in kept for place in range(last_user, len(roles)))
    if sum(tokens) <= cap:
        assert kept == list(range(len(roles)))
