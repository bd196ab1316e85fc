"""Carries out intents on what a fleet's nodes share: prepared before the first node, torn down after the last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import SHARED_GIVEN_UP_S, since_s
from fleetctl.errors import AmbiguousOutcomeError, FleetctlError, ThrottledError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.shared import ObservedShared, SharedState
from fleetctl.model.subject import FLEET
from fleetctl.ports.store import SharedIntent, Tombstone

if TYPE_CHECKING:
    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.world import World
    from fleetctl.model.desired import Desired
    from fleetctl.model.shared import SharedResource

_KEY = "shared/"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempts:
    """The attempts at one intent and their results."""

    failures: int = 0
    failed_at: datetime | None = None
    fault: str = ""
    settles_at: datetime | None = None


class SharedOperations:
    """Prepares and tears down shared resources; the only writer of their intents."""

    def __init__(self, world: World, *, calls: ProviderCalls, background: BackgroundTasks, journal: Journal) -> None:
        self._world = world
        self._calls = calls
        self._background = background
        self._journal = journal
        self._intents = {intent.token: intent for intent in world.store.shared_intents()}
        # An earlier controller may have asked right before it died, and what it asked for may still come.
        settles_at = world.clock.now() + self._settles
        still_open = [token for token, intent in self._intents.items() if intent.state.is_open]
        self._attempts = {token: _Attempts(settles_at=settles_at) for token in still_open}

    def observed(self) -> tuple[ObservedShared, ...]:
        """Return what the fleet needs and what is left of it, in the order of preparing."""
        needed = {resource.token: resource for resource in self._needed}
        former = [intent.resource for token, intent in self._intents.items() if token not in needed]
        return (
            *(self._observed(resource, is_needed=False) for resource in former),
            *(self._observed(resource, is_needed=True) for resource in self._needed),
        )

    @property
    def left(self) -> int:
        """How many there are, or may be."""
        return len(self._intents)

    def prepare(self, resource: SharedResource) -> None:
        """Have it made, in the background."""
        self._begin(resource, SharedState.PREPARING)

    def teardown(self, resource: SharedResource) -> None:
        """Have it removed, in the background."""
        self._begin(resource, SharedState.TEARING_DOWN)

    def abandon(self, desired: Desired, resource: SharedResource, reason: str) -> None:
        """Leave a tombstone for what may still be there."""
        tombstone = Tombstone(
            token=resource.token,
            provider=desired.profile.provider,
            provider_settings=desired.profile.provider_settings,
            fleet=resource.fleet,
            replica_id="",
            node_id="",
            offering="",
            ended_at=self._world.clock.now(),
            reason=reason,
            shared=resource,
        )
        self._end(resource.token, tombstone)

    @cached_property
    def _needed(self) -> tuple[SharedResource, ...]:
        shared = self._world.provider.capabilities.shared
        return shared.needed(owner=self._world.store.owner, fleet=self._world.fleet) if shared is not None else ()

    def _observed(self, resource: SharedResource, *, is_needed: bool) -> ObservedShared:
        intent = self._intents.get(resource.token)
        attempts = self._attempts.get(resource.token, _Attempts())
        return ObservedShared(
            resource=resource,
            state=intent.state if intent is not None else SharedState.NEEDED,
            is_needed=is_needed,
            under_way=self._background.is_running(_KEY + resource.token),
            began_at=intent.created_at if intent is not None else None,
            failures=attempts.failures,
            failed_at=attempts.failed_at,
            fault=attempts.fault,
            settles_at=attempts.settles_at,
        )

    def _begin(self, resource: SharedResource, state: SharedState) -> None:
        """Commit the intent, then carry it out; one that is open already keeps its age."""
        if self._background.is_running(_KEY + resource.token):
            return
        known = self._intents.get(resource.token)
        if known is None or known.state is not state:
            self._put(
                SharedIntent(
                    token=resource.token,
                    fleet=self._world.fleet,
                    state=state,
                    resource=resource,
                    created_at=self._world.clock.now(),
                )
            )
            self._attempts.pop(resource.token, None)
        intent = self._intents[resource.token]
        self._background.start(_KEY + resource.token, lambda: self._carry_out(intent))

    async def _carry_out(self, intent: SharedIntent) -> None:
        await self._world.store.committed()
        self._count(intent)
        is_prepare = intent.state is SharedState.PREPARING
        call = self._calls.prepare if is_prepare else self._calls.teardown
        while True:
            try:
                await call(intent.resource)
            except ThrottledError as exc:
                if self._goes_on(intent):
                    continue  # it is let in when the provider said so
                self._failed(intent, exc)
                return
            except FleetctlError as exc:
                self._failed(intent, exc)
                return
            break
        self._attempts.pop(intent.token, None)
        if is_prepare:
            self._put(replace(intent, state=SharedState.PREPARED))
        else:
            self._end(intent.token, None)

    def _goes_on(self, intent: SharedIntent) -> bool:
        """Whether a throttled attempt is still wanted, and not given up."""
        desired = self._world.store.fleet()
        is_up = desired is not None and desired.phase is DesiredPhase.UP
        if intent.state is SharedState.PREPARING:
            return is_up
        return not is_up and since_s(intent.created_at, self._world.clock.now()) < SHARED_GIVEN_UP_S

    def _failed(self, intent: SharedIntent, error: FleetctlError) -> None:
        self._journal.failed(FLEET, "prepare" if intent.state is SharedState.PREPARING else "teardown", error)
        is_cut = isinstance(error, AmbiguousOutcomeError)
        settles_at = self._world.clock.now() + self._settles if is_cut else None
        before = self._attempts[intent.token]
        self._attempts[intent.token] = replace(
            before, fault=error.message, failed_at=self._world.clock.now(), settles_at=settles_at
        )

    def _count(self, intent: SharedIntent) -> None:
        """Count an attempt as failed until it is answered, so that one that a bug ends is counted too."""
        now = self._world.clock.now()
        before = self._attempts.get(intent.token, _Attempts())
        self._attempts[intent.token] = replace(
            before, failures=before.failures + 1, failed_at=now, settles_at=now + self._settles
        )

    def _put(self, intent: SharedIntent) -> None:
        self._world.store.put_shared(intent)
        self._intents[intent.token] = intent

    def _end(self, token: str, tombstone: Tombstone | None) -> None:
        self._world.store.end_shared(token, tombstone=tombstone)
        self._intents.pop(token, None)
        self._attempts.pop(token, None)

    @property
    def _settles(self) -> timedelta:
        return timedelta(seconds=self._world.provider.pace.create_settles_s)
