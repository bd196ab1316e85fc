"""Finds replicas that are much slower than their peers, leaves them alone, and readmits those whose probes are well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleetctl.core.dispatch.peer_values import PeerValues
from fleetctl.core.routing.outlier import (
    HELD_SHARE,
    NEWEST_STREAMS,
    PEERS_MIN,
    SHARE_OUT_MAX,
    STREAMS_MIN,
    is_outlier,
    typical_s,
    verdict_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set as AbstractSet

    from fleetctl.core.dispatch.replica import DispatchReplica
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState

_EVERY_S: Final = 2.0
_PROMPT_TOKENS: Final = 1000  # of a prompt that replicas are compared by


class OutlierDetector:
    """Compares replicas of one lane and one planned speed, every other second."""

    __slots__ = ("_next_s", "_routes")

    def __init__(self, routes: RoutingState) -> None:
        self._routes = routes
        self._next_s = 0.0

    def check(self, active: Iterable[ActiveRequest], now_s: float) -> None:
        """Eject and readmit, if it is time to look."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        alike: dict[tuple[str, float], list[DispatchReplica]] = {}
        for replica in self._routes.replicas.values():
            if replica.candidate.in_rotation:
                alike.setdefault((replica.route.lane, replica.route.prefill_tokens_per_s), []).append(replica)
        if not any(len(replicas) > PEERS_MIN or replicas[0].slow.until_s for replicas in alike.values()):
            return
        running = list(active)
        streams = _streams(running, self._routes.replicas.values(), now_s)
        shared = {each.replica for each in running if each.replica and each.replica.route.lane != each.lane.route.name}
        for replicas in alike.values():
            self._compare(replicas, streams, shared, now_s)

    def _compare(
        self,
        replicas: Sequence[DispatchReplica],
        streams: dict[DispatchReplica, list[tuple[float, bool]]],
        shared: AbstractSet[DispatchReplica],
        now_s: float,
    ) -> None:
        """Note who is much slower than the others, and whose probes are well. `shared`: they have other lanes' requests now."""
        paces = {
            replica: typical_s(streams[replica])
            for replica in replicas
            if not replica.slow.until_s and len(streams[replica]) >= STREAMS_MIN
        }
        # Each is compared with all others: of a thousand, one median for each from the beginning would take a gateway's
        # loop for as long as a hang.
        all_paces = PeerValues(paces.values())
        prompts_s = PeerValues(each.candidate.line.alone_s(_PROMPT_TOKENS) for each in replicas)
        most = PeerValues(each.candidate.concurrency_max for each in replicas)
        for replica in replicas:
            peers_tpot_s = all_paces.median_beside(paces.get(replica), least=PEERS_MIN)
            if replica.slow.until_s:
                if replica.slow.until_s <= now_s:
                    _judge_probes(replica, streams[replica], peers_tpot_s, now_s)
                continue
            looks_slow = peers_tpot_s is not None and is_outlier(
                streams[replica],
                peers_tpot_s,
                slow_at_prompts_by=_slow_at_prompts_by(replica, prompts_s),
                streams_max=replica.candidate.concurrency_max,
                is_held=replica not in shared and _is_held(replica, most),
            )
            is_slow = replica.slow.is_confirmed(now_s, is_outlier=looks_slow)
            if is_slow and peers_tpot_s and self._may_eject(replica, replicas):
                if (pace := paces.pop(replica, None)) is not None:
                    all_paces.remove(pace)
                replica.eject_slow(now_s, typical_s(streams[replica]), peers_tpot_s)

    def _may_eject(self, replica: DispatchReplica, replicas: Sequence[DispatchReplica]) -> bool:
        out = sum(other.slow.until_s > 0.0 for other in replicas)
        return out < max(1, int(len(replicas) * SHARE_OUT_MAX)) and self._routes.may_eject(replica)


def _slow_at_prompts_by(replica: DispatchReplica, prompts_s: PeerValues) -> float:
    """Return how many times as long as its peers' median it takes over a prompt, as learned from first tokens."""
    own_s = replica.candidate.line.alone_s(_PROMPT_TOKENS)
    peers_s = prompts_s.median_beside(own_s)
    return own_s / peers_s if peers_s is not None else 1.0


def _is_held(replica: DispatchReplica, most: PeerValues) -> bool:
    peers = most.median_beside(replica.candidate.concurrency_max)
    return peers is not None and replica.candidate.concurrency_max <= HELD_SHARE * peers


def _judge_probes(
    replica: DispatchReplica, probes: Sequence[tuple[float, bool]], peers_tpot_s: float | None, now_s: float
) -> None:
    is_slow = verdict_of(probes, peers_tpot_s)
    if is_slow and peers_tpot_s:
        replica.eject_slow(now_s, typical_s(probes), peers_tpot_s)
    elif is_slow is False:
        replica.readmit_slow(now_s)


def _streams(
    active: Iterable[ActiveRequest], replicas: Iterable[DispatchReplica], now_s: float
) -> dict[DispatchReplica, list[tuple[float, bool]]]:
    """Return what every replica's newest streams took per token, those that run included; of one that is probed, the probes.

    Those that have ended count as far as those that run are few: one that became slow says so by these alone.
    """
    found: dict[DispatchReplica, list[tuple[float, bool]]] = {replica: [] for replica in replicas}
    for request in active:
        replica = request.replica
        if replica is None or replica not in found or request.dispatched_s < replica.slow.until_s:
            continue
        tpot_s = request.tpot_s
        if tpot_s is not None:
            found[replica].append((tpot_s, request.stopwatch.has_missed))
    for replica, running in found.items():
        if (lacking := NEWEST_STREAMS - len(running)) > 0:
            running.extend(replica.pace.since(now_s, replica.slow.until_s)[-lacking:])
    return found
