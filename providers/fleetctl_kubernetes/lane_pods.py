"""How many pods a lane is to have: by what its controller has decided, not by how many an eviction has left of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl_kubernetes.group_members import size_of
from fleetctl_kubernetes.settings import EPOCH, LANE, REPLICA, label_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Object = dict[str, Any]
_ENDED = ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTargets:
    """What a fleet's controller has last decided; lanes and replicas by their labels."""

    wanted: dict[str, int]  # replicas, by lane
    moved: dict[str, str]  # the lane that a replica serves in place of the one it was ordered for, by replica
    epoch: int = 0  # of the lease it was decided under

    @classmethod
    def by_labels(cls, wanted: Mapping[str, int], moved: Mapping[str, str], *, epoch: int = 0) -> LaneTargets:
        """Return it of names."""
        return cls(
            epoch=epoch,
            wanted={label_value(lane): count for lane, count in wanted.items()},
            moved={label_value(replica): label_value(lane) for replica, lane in moved.items()},
        )


def epoch_of(there: Object) -> int:
    """Return the epoch of the lease that an object, or a pod's lane, was last written under; 0: it does not say."""
    text = (there["metadata"].get("annotations") or {}).get(EPOCH, "")
    return int(text) if text.isdecimal() else 0


def staying_pods(pods: Iterable[Object]) -> list[Object]:
    """Return the pods of lanes that nobody has told to end, and that have not ended."""
    return [each for each in pods if LANE in (each["metadata"].get("labels") or {}) and _is_staying(each)]


def pods_wanted(staying: Iterable[Object], targets: LaneTargets | None) -> dict[str, int]:
    """Return how many pods with its label each lane is to have that has any, or will; without targets, those that are there.

    Pods follow their replicas to other lanes. One that does not, or not yet, is one more of its label's lane, and one fewer
    of the other's. A replica over several nodes has a pod on each.
    """
    sizes: dict[str, dict[str, int]] = {}  # of its replicas, by lane
    counts: Counter[str] = Counter()
    for pod in staying:
        labels = pod["metadata"]["labels"]
        counts[labels[LANE]] += 1
        sizes.setdefault(labels[LANE], {})[labels.get(REPLICA, pod["metadata"]["name"])] = size_of(pod)
    if targets is None:
        return dict(counts)
    lent: Counter[str] = Counter()
    for lane, replicas in list(sizes.items()):
        for serves in (targets.moved[replica] for replica in replicas if targets.moved.get(replica, lane) != lane):
            lent[lane] += 1
            lent[serves] -= 1
            sizes.setdefault(serves, {})
    return {
        lane: _pods_of(targets.wanted.get(lane, 0) + lent[lane], sorted(replicas.values()))
        for lane, replicas in sizes.items()
    }


def lacks_pods(staying: Iterable[Object], targets: LaneTargets | None) -> bool:
    """Whether some lane has fewer pods on nodes than it is to have; False while that is not known."""
    if targets is None:
        return False
    placed: Counter[str] = Counter()
    pods = list(staying)
    for pod in pods:
        placed[pod["metadata"]["labels"][LANE]] += bool(pod.get("spec", {}).get("nodeName"))
    wanted = targets.wanted | pods_wanted(pods, targets)
    return any(count > placed[lane] for lane, count in wanted.items())


def _pods_of(replicas: int, sizes: list[int]) -> int:
    """Return the pods of so many replicas, of which some may be there; while their sizes differ, of the smaller ones."""
    lacking = max(0, replicas - len(sizes))
    return sum(sizes[: max(0, replicas)]) + lacking * (sizes[0] if sizes else 1)


def _is_staying(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in _ENDED
