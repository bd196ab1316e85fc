"""Pods that no node has room for: whether somebody brings one, as autoscalers say in their events, or they wait in vain."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl_kubernetes.orders import instant

if TYPE_CHECKING:
    from collections.abc import Collection

    from fleetctl.clock import Clock
    from fleetctl_kubernetes.connection import ClusterConnection

Object = dict[str, Any]
_log = logging.getLogger("fleetctl_kubernetes")
# Autoscalers event a pod within some ten seconds (Karpenter gathers pods for 10 s at most, the cluster autoscaler looks
# every 10 s); a node that somebody is leaving has its pods' grace, up to two minutes for an engine's, which is not waited for.
_UNANSWERED = timedelta(seconds=30)
# The cluster autoscaler gives a node 15 minutes to register (--max-node-provision-time), Karpenter too.
_BROUGHT_WITHIN = timedelta(minutes=15)
_READ_EVERY_S = 5.0
_EVENTS_MAX = 500
_COMING = ("Nominated", "TriggeredScaleUp")  # by Karpenter, by the cluster autoscaler
_NOT_COMING = ("FailedScheduling", "NotTriggerScaleUp")
# The scheduler's own FailedScheduling, of every pod and again and again, says nothing of autoscalers.
_SELECTED = ("source=karpenter", "reason=TriggeredScaleUp", "reason=NotTriggerScaleUp")
_CLAIM = re.compile(r"nodeclaim/([a-z0-9.-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScalerEvent:
    """What an autoscaler has last said of a pod."""

    at: datetime
    is_coming: bool
    message: str


class WaitingPods:
    """A fleet's pods without a node, and what autoscalers last said of each; events are read only while some pod waits."""

    def __init__(self, connection: ClusterConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._read_s = float("-inf")
        self._events: dict[str, _ScalerEvent] = {}  # by the pod's uid
        # Karpenter's that are there, each with when its node took its first pods, if it does; None: not known.
        self._claims: dict[str, datetime | None] | None = None
        self._complained = ""

    async def in_vain(self, pods: Collection[Object]) -> frozenset[str]:
        """Return the names of the pods that no node has room for, and that no autoscaler is bringing one for."""
        now = self._clock.now()
        since = {each["metadata"]["uid"]: at for each in pods if (at := unschedulable_since(each)) is not None}
        if not any(now - at >= _UNANSWERED / 2 for at in since.values()):
            return frozenset()
        if self._clock.monotonic_s() - self._read_s >= _READ_EVERY_S:
            self._read_s = self._clock.monotonic_s()
            await self._read()
        return frozenset(
            each["metadata"]["name"]
            for each in pods
            if (at := since.get(each["metadata"]["uid"])) is not None and self._is_in_vain(each, at, now)
        )

    def _is_in_vain(self, pod: Object, since: datetime, now: datetime) -> bool:
        event = self._events.get(pod["metadata"]["uid"])
        if pod.get("status", {}).get("nominatedNodeName"):
            return False  # the scheduler makes room for it by preemption
        if event is None:
            return now - since >= _UNANSWERED
        if not event.is_coming:
            return now - since >= _UNANSWERED / 2
        claim = _CLAIM.search(event.message)
        if claim is None or self._claims is None:
            return now - event.at >= _BROUGHT_WITHIN
        if claim[1] not in self._claims:
            # Its machine was not to be had, or has gone again: Karpenter is given the time to try another.
            return now - event.at >= _UNANSWERED
        # On a node that is there and has not taken it another pod was quicker.
        in_use_since = self._claims[claim[1]] or now
        return now - event.at >= _BROUGHT_WITHIN or now - max(in_use_since, event.at) >= _UNANSWERED

    async def _read(self) -> None:
        """Read what autoscalers have said; without the right to, only how long a pod waits is known."""
        try:
            namespace = self._connection.namespace
            found: dict[str, _ScalerEvent] = {}
            for selected in _SELECTED:
                listing = await self._connection.read(
                    "CoreV1Api", "list_namespaced_event", namespace,
                    field_selector=f"involvedObject.kind=Pod,{selected}", limit=_EVENTS_MAX,
                )  # fmt: skip
                for event in listing["items"]:
                    if event["reason"] in (*_COMING, *_NOT_COMING):
                        _take(found, event)
            self._events = found
            self._claims = (
                await self._karpenters_claims() if any(_CLAIM.search(a.message) for a in found.values()) else None
            )
            self._complained = ""
        except ProviderError as exc:
            if self._complained != exc.message:
                self._complained = exc.message
                _log.warning("what autoscalers do for waiting pods is not known: %s", exc.message)

    async def _karpenters_claims(self) -> dict[str, datetime | None] | None:
        try:
            listing = await self._connection.read(
                "CustomObjectsApi", "list_cluster_custom_object", "karpenter.sh", "v1", "nodeclaims"
            )
        except ProviderError:
            return None  # they may not be listed: a node is then waited for as long as one takes at most
        there = (each for each in listing["items"] if "deletionTimestamp" not in each["metadata"])
        return {each["metadata"]["name"]: _in_use_since(each) for each in there}


def _in_use_since(claim: Object) -> datetime | None:
    for condition in claim.get("status", {}).get("conditions") or ():
        if (condition["type"], condition["status"]) == ("Initialized", "True"):
            return instant(condition["lastTransitionTime"])
    return None


def unschedulable_since(pod: Object) -> datetime | None:
    """Return since when the scheduler finds no node for a pod; None: it has one, or was not looked at."""
    if "deletionTimestamp" in pod["metadata"] or pod["spec"].get("nodeName"):
        return None
    for condition in pod.get("status", {}).get("conditions") or ():
        is_no = condition["type"] == "PodScheduled" and condition["status"] == "False"
        if is_no and condition.get("reason") == "Unschedulable":
            return instant(condition.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])
    return None


def _take(found: dict[str, _ScalerEvent], event: Object) -> None:
    """Keep an event where it is the last of its pod."""
    uid = event["involvedObject"].get("uid", "")
    text = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    if not uid or not text:
        return
    at = instant(text)
    if uid not in found or found[uid].at <= at:
        is_coming = event["reason"] in _COMING
        found[uid] = _ScalerEvent(at=at, is_coming=is_coming, message=event.get("message", ""))
