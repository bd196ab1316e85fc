"""A mere hint decides who goes, never whether somebody does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.disruption import notice_text, scale_down_order
from fleetctl.core.reconcile import reconcile
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.reason import ReasonCode
from tests.reconcile import worlds
from tests.reconcile.test_properties import NOW_S, fleets, memories, observations

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision
    from fleetctl.model.observation import Observation

NOW = worlds.at(NOW_S)

hints = st.builds(
    Notice,
    kind=st.sampled_from(list(NoticeKind)),
    deadline=st.none() | st.floats(0, 7200).map(worlds.at),
    is_certain=st.just(False),
)


def warned(seen: Observation, notices: list[Notice | None]) -> Observation:
    """Return the observation with a notice on each replica, as far as they go."""
    padded = [*notices, *[None] * len(seen.replicas)]
    return replace(
        seen, replicas=tuple(msgspec.structs.replace(r, notice=n) for r, n in zip(seen.replicas, padded, strict=False))
    )


def unrestartable(seen: Observation) -> Observation:
    """Return the observation where no engine can be started anew: on a node that a hint speaks against none is, and it is replaced."""
    return replace(seen, replicas=tuple(msgspec.structs.replace(r, can_restart=False) for r in seen.replicas))


def excess(decision: Decision, seen: Observation) -> Counter[str]:
    """Count what is given up as one too many, by lane."""
    lanes = {r.record.id: r.record.lane for r in seen.replicas}
    return Counter(lanes[a.subject.name] for a in decision.actions if a.code is ReasonCode.REPLICA_EXCESS)


@settings(deadline=None)
@given(fleets(), observations(), memories, st.lists(st.none() | hints, max_size=9))
def test_hints_change_whom_scaling_down_takes_and_nothing_else(fleet, seen, memory, notices):
    seen = unrestartable(seen)
    without = reconcile(fleet, seen, memory, NOW)
    with_hints = reconcile(fleet, warned(seen, notices), memory, NOW)
    assert excess(with_hints, seen) == excess(without, seen)
    others = [[a for a in d.actions if a.code is not ReasonCode.REPLICA_EXCESS] for d in (without, with_hints)]
    assert Counter(map(repr, others[0])) == Counter(map(repr, others[1]))


@given(observations(), st.lists(st.none() | hints, max_size=9))
def test_the_warned_ones_are_given_up_before_all_others(seen, notices):
    order = scale_down_order(warned(seen, notices).replicas)
    assert [r.notice is None for r in order] == sorted(r.notice is None for r in order)


@pytest.mark.parametrize(
    ("kind", "has_deadline", "takes"),
    [
        (NoticeKind.INTERRUPTION, False, True),
        (NoticeKind.INTERRUPTION, True, True),
        (NoticeKind.MAINTENANCE, True, True),
        (NoticeKind.MAINTENANCE, False, False),
        (NoticeKind.NOT_READY, False, False),
        (NoticeKind.REBALANCE, False, False),
    ],
)
def test_a_certain_notice_takes_the_node_where_it_says_when(kind, has_deadline, takes):
    deadline = NOW if has_deadline else None
    assert Notice(kind=kind, deadline=deadline, is_certain=True).takes_node is takes
    assert not Notice(kind=kind, deadline=deadline, is_certain=False).takes_node


def test_a_notice_reads_as_a_sentence():
    soon = Notice(kind=NoticeKind.MAINTENANCE, deadline=NOW + timedelta(seconds=90), is_certain=False)
    assert notice_text(soon, NOW) == "maintenance notice in 1m30s, it may yet stay"
    assert notice_text(replace(soon, deadline=NOW, is_certain=True), NOW) == "maintenance notice due"
