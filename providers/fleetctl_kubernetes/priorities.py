"""PriorityClasses of lanes: those the profile names, else fleetctl's own, which all fleets of a cluster share."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue import kubernetes_priorities as own
from fleetctl.catalogue.kubernetes_rights import PRIORITY_NAMED_RIGHTS, PRIORITY_RIGHTS
from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.reviews import may
from fleetctl_kubernetes.settings import MANAGED_BY, MANAGER

if TYPE_CHECKING:
    from fleetctl.model.node import NodeRequest
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.settings import ClusterSettings

Object = dict[str, Any]
_log = logging.getLogger("fleetctl_kubernetes")
_API = "SchedulingV1Api"
_USER = "users.fleetctl.dev/"  # an annotation's prefix: one for each fleet that uses a class
_MERGE = "application/merge-patch+json"
_TRIES = 3  # against fleets that are taken down at the same moment


class PriorityClasses:
    """Which class a lane's pods have. Each fleet leaves a mark on the classes it uses, and the last takes them away."""

    def __init__(self, connection: ClusterConnection, settings: ClusterSettings) -> None:
        self._connection = connection
        self._named = own.named_classes(settings.priority_classes)
        self._marked: set[tuple[str, str, str]] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._is_refused = False

    async def are_by_rank(self) -> bool:
        """Whether pods of an earlier lane have a higher priority, so that the scheduler ends a later lane's for them.

        The rights are looked at: whoever plans makes no class, and learns of no refusal.
        """
        return self._named is None and not self._is_refused and not await _missing_rights(self._connection)

    async def class_of(self, request: NodeRequest) -> str:
        """Return the class of a request's pod, which is there; empty: it has none."""
        if self._named is not None:
            return self._named.get(request.lane, "")
        if self._is_refused:
            return ""
        name = own.class_name(request.lane_rank, is_interruptible=request.is_interruptible)
        use = (request.owner, request.fleet, name)
        try:
            # A batch of orders wants one class, and looks for it once.
            async with self._locks.setdefault(name, asyncio.Lock()):
                if use not in self._marked:
                    await self._have(request, name)
                    self._marked.add(use)
        except CredentialsError as exc:
            self._is_refused = True
            _log.warning("pods have no PriorityClass: %s", exc.message)
            return ""
        return name

    def forget(self, owner: str, fleet: str) -> None:
        """Look anew at what a fleet uses: somebody has taken one away."""
        self._marked = {each for each in self._marked if each[:2] != (owner, fleet)}

    async def release(self, owner: str, fleet: str) -> None:
        """Take a fleet's marks off, and delete the classes that no fleet uses any more."""
        self.forget(owner, fleet)
        mark = _mark(owner, fleet)
        try:
            listing = await self._connection.read(
                _API, "list_priority_class", label_selector=f"{MANAGED_BY}={MANAGER}"
            )  # fmt: skip
            for each in listing["items"]:
                if mark in _annotations(each):
                    await self._release(each["metadata"]["name"], mark)
        except CredentialsError:
            return  # who may not list them has made none

    async def _have(self, request: NodeRequest, name: str) -> None:
        """Have a class there that bears the fleet's mark. Raises ProviderError where the name is somebody else's."""
        mark = {_mark(request.owner, request.fleet): f"{self._connection.namespace}/{request.fleet}"}
        for _ in range(_TRIES):
            found = await self._found(name)
            body = own.class_body(name, base=await self._default_value(), labels={MANAGED_BY: MANAGER}, marks=mark)
            if found is None:
                with suppress(ConflictError):  # another fleet's was quicker
                    await self._connection.change(_API, "create_priority_class", body, field_manager=MANAGER)
                    return
                continue
            if (found["metadata"].get("labels") or {}).get(MANAGED_BY) != MANAGER:
                raise ProviderError(
                    f"PriorityClass {name} is somebody else's",
                    hint="nothing of it was touched: remove it, or name classes of yours: provider.priority_classes",
                )
            if found["value"] != body["value"]:
                # The cluster's default class has come, gone or changed since, and ours are not to be above it. A class never
                # changes: it is made anew, with every fleet's mark. Pods that have it keep the value they were given.
                marks = {key: text for key, text in _annotations(found).items() if key.startswith(_USER)}
                body["metadata"]["annotations"] = marks | mark
                with suppress(NotThereError, ConflictError):
                    await self._delete(found)
                    await self._connection.change(_API, "create_priority_class", body, field_manager=MANAGER)
                    return
                continue
            if mark.items() <= _annotations(found).items():
                return
            with suppress(NotThereError):  # its last fleet has taken it away
                await self._annotate(name, mark)
                return
        raise ProviderError(f"PriorityClass {name} comes and goes", hint="it is tried again")

    async def _release(self, name: str, mark: str) -> None:
        with suppress(NotThereError, ConflictError):  # gone, or somebody has begun to use it
            left = await self._annotate(name, {mark: None})
            if any(each.startswith(_USER) for each in _annotations(left)):
                return
            await self._delete(left)

    async def _delete(self, found: Object) -> None:
        """Delete a class as it was read. Raises NotThereError, ConflictError where it is another by now."""
        metadata = found["metadata"]
        here = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        await self._connection.change(_API, "delete_priority_class", metadata["name"], body={"preconditions": here})

    async def _annotate(self, name: str, marks: dict[str, str] | dict[str, None]) -> Object:
        # Keys of their own in a merge patch: two fleets take nothing of each other's back.
        return await self._connection.change(
            _API, "patch_priority_class", name, {"metadata": {"annotations": marks}},
            field_manager=MANAGER, _content_type=_MERGE,
        )  # fmt: skip

    async def _found(self, name: str) -> Object | None:
        try:
            return await self._connection.read(_API, "read_priority_class", name)
        except NotThereError:
            return None

    async def _default_value(self) -> int:
        """Return the priority of pods without a class: that of the cluster's default one, else 0."""
        listing = await self._connection.read(_API, "list_priority_class")
        return next((int(each["value"]) for each in listing["items"] if each.get("globalDefault")), 0)


async def priority_finding(connection: ClusterConnection, settings: ClusterSettings) -> Finding:
    """Return which PriorityClasses pods will have."""
    name = "priorities"
    if settings.priority_classes is not None:
        return await _named_finding(connection, settings.priority_classes)
    if missing := await _missing_rights(connection):
        hint = "where GPUs are out no lane goes before another: have them granted, or name classes: provider.priority_classes"
        detail = f"pods have no PriorityClass, not allowed: {', '.join(missing)} (cluster)"
        return Finding(name=name, verdict=Verdict.WARN, detail=detail, hint=hint)
    return Finding(
        name=name, verdict=Verdict.OK, detail="lanes in the profile's order, those that may be interrupted last"
    )


async def _missing_rights(connection: ClusterConnection) -> list[str]:
    """Return what of fleetctl's own classes may not be done."""
    of_all = [f"{verb} {what}" for verb, what in PRIORITY_RIGHTS if not await may(connection, verb, what, "")]
    return of_all + [
        f"{verb} {what}"
        for verb, what in PRIORITY_NAMED_RIGHTS
        if not await may(connection, verb, what, "", own.NAMES[0])
    ]


async def _named_finding(connection: ClusterConnection, named: tuple[str, ...]) -> Finding:
    absent = []
    for each in sorted({text.partition("=")[2] for text in named}):
        try:
            await connection.read(_API, "read_priority_class", each)
        except NotThereError:
            absent.append(each)
        except CredentialsError:
            continue  # whether it is there shows once pods are ordered
    if absent:
        hint = "create them, or name others: `kubectl get priorityclasses`"
        detail = f"there is no PriorityClass {', '.join(absent)}"
        return Finding(name="priorities", verdict=Verdict.FAIL, detail=detail, hint=hint)
    detail = f"of the profile: {', '.join(named) or 'none'}"
    return Finding(name="priorities", verdict=Verdict.OK, detail=detail)


def _annotations(found: Object) -> dict[str, str]:
    return found["metadata"].get("annotations") or {}


def _mark(owner: str, fleet: str) -> str:
    return _USER + hashlib.sha256(f"{owner}/{fleet}".encode()).hexdigest()[:16]
