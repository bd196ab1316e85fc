"""How many pods of each lane are to be there: by what is wanted, whatever is left."""

from __future__ import annotations

from typing import Any

from fleetctl_kubernetes.group_members import NAME
from fleetctl_kubernetes.lane_pods import LaneTargets, pods_wanted, staying_pods
from fleetctl_kubernetes.settings import LANE, REPLICA

SIZE = "leaderworkerset.sigs.k8s.io/size"


def pod(replica: str, lane: str = "short", *, size: int = 1, **metadata: Any) -> dict[str, Any]:
    labels = {LANE: lane, REPLICA: replica} | ({NAME: replica} if size > 1 else {})
    annotations = {SIZE: str(size)} if size > 1 else {}
    return {"metadata": {"name": replica, "labels": labels, "annotations": annotations, **metadata}}


def targets(moved: dict[str, str] | None = None, **wanted: int) -> LaneTargets:
    return LaneTargets.by_labels(wanted, moved or {})


def test_those_that_an_eviction_has_taken_are_wanted_still() -> None:
    there = [pod("r1"), pod("r2", deletionTimestamp="2026-11-29T01:00:00Z")]
    assert pods_wanted(staying_pods(there), targets(short=3)) == {"short": 3}


def test_surplus_of_a_rollout_is_not_wanted_for_good() -> None:
    assert pods_wanted([pod("r1"), pod("r2"), pod("r3"), pod("r4")], targets(short=3)) == {"short": 3}


def test_nothing_is_wanted_of_a_lane_that_ends_or_was_removed() -> None:
    assert pods_wanted([pod("r1"), pod("r2", "old")], targets(short=0)) == {"short": 0, "old": 0}


def test_a_replica_that_serves_another_lane_is_counted_where_its_label_is() -> None:
    there = [pod("r1"), pod("r2"), pod("r3"), pod("r4", "long")]
    # Two of the three that bear the one's label serve the other by now.
    moved = {"r2": "long", "r3": "long"}
    assert pods_wanted(there, targets(moved, short=1, long=3)) == {"short": 3, "long": 1}
    assert pods_wanted(there, targets({"r2": "short"}, short=3, long=1)) == {"short": 3, "long": 1}
    # Labelled since, it is one of that lane's like any other.
    followed = [pod("r1"), pod("r2", "long"), pod("r3", "long"), pod("r4", "long")]
    assert pods_wanted(followed, targets(moved, short=1, long=3)) == {"short": 1, "long": 3}


def test_a_lane_whose_only_replica_was_lent_to_it_has_its_objects_before_the_pod_has_its_label() -> None:
    assert pods_wanted([pod("r1"), pod("r2")], targets({"r2": "batch"}, short=1, batch=1)) == {"short": 2, "batch": 0}
    assert pods_wanted([pod("r1"), pod("r2")], targets({"r2": "batch"}, short=1, batch=2)) == {"short": 2, "batch": 1}


def test_a_replica_over_several_nodes_has_a_pod_on_each() -> None:
    group = [pod("r1", size=3), pod("r1", size=3)]  # its third is being made
    assert pods_wanted(group, targets(short=2)) == {"short": 6}
    # While a rollout brings larger ones it is counted by those that will go, so that nobody is held for what may not come.
    assert pods_wanted([pod("r2"), *group], targets(short=1)) == {"short": 1}
    assert pods_wanted([pod("r2"), *group], targets(short=2)) == {"short": 4}


def test_before_the_first_decision_it_is_what_is_there() -> None:
    assert pods_wanted([pod("r1"), pod("r2"), pod("r3", "long")], None) == {"short": 2, "long": 1}
