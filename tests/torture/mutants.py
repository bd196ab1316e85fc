"""Known bugs, put into the controller one at a time: checks that find none of them check nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.controller.apply import Applier
from fleetctl.controller.create import Creator
from fleetctl.controller.intents import Resolver
from fleetctl.controller.interruptions import ClockWatch
from fleetctl.controller.journal import Journal
from fleetctl.controller.offerings import Offerings
from fleetctl.controller.provider_calls import ProviderCalls
from fleetctl.controller.publish import Publisher
from fleetctl.controller.warm import Warmups
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.core import overload, placement, scaling
from fleetctl.core.clock_steps import shifted, shifted_replica
from fleetctl.core.reconcile import balance, fleet, headroom, launch_backoff, lifecycle, limits, vanished
from fleetctl.state import leases
from tests.torture.setting import WATCHED_FROM, WIDE_FROM

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug: what takes the place of functions, methods or constants."""

    name: str
    patches: tuple[tuple[Any, str, Callable[[Any], Any]], ...]  # where, which, and what was there -> what is there
    seeds_from: int = 0  # of the kind of fleet in which alone it is found

    def seeds(self, first: int, count: int) -> range:
        """Return so many seeds to look for it in."""
        return range(self.seeds_from + first, self.seeds_from + first + count)


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Have the bug in for a block."""
    with ExitStack() as stack:
        for place, attribute, bug in mutant.patches:
            before = place.__dict__[attribute]
            stack.callback(setattr, place, attribute, before)
            setattr(place, attribute, bug(before))
        yield


def _mutant(name: str, place: Any, attribute: str, bug: Callable[[Any], Any], *, seeds_from: int = 0) -> Mutant:
    return Mutant(name=name, patches=((place, attribute, bug),), seeds_from=seeds_from)


def _instead(value: Any) -> Callable[[Any], Any]:
    """Return what puts a value in the place of another."""
    return lambda _before: value


def _forget_intent(self: Any, _desired: Any, intent: Any) -> None:
    self._creator.close(intent, "forgotten", is_final=False)


def _refuse_unknown(self: Any, _desired: Any, intent: Any, error: Any) -> None:
    self.close(intent, error.message, is_final=False)


def _renamed_orders(create: Any) -> Any:
    def renamed(self: Any, requests: Any, resolve: Any) -> Any:
        orders = tuple(replace(r, token=f"{r.token[:16]}{int(self._clock.monotonic_s() * 1e3):016d}") for r in requests)
        return create(self, orders, resolve)

    return renamed


def _one_less(machine_count: Any) -> Any:
    return lambda records: max(0, machine_count(records) - 1)


async def _nothing(*_args: Any, **_named: Any) -> None:
    """Wait for nothing, and do nothing."""


def _apart(_write: Any) -> Any:
    """Have each write of a step of the clock be one of its own: a kill may come between any two."""

    def shift_clock(self: Any, by: Any) -> None:
        for record in self.replicas():
            if record.state.is_live:
                self.put_replica(shifted_replica(record, by))
        self.put_memory(shifted(self._memory, by))
        now, monotonic_s = self._clock.now(), self._clock.monotonic_s()
        self._queue.put(lambda store: store.renew_lease(now=now, monotonic_s=monotonic_s, accounts_for_clock=True))

    return shift_clock


def _drained_first(drain: Any) -> Any:
    return lambda lane, context: drain(replace(lane, may_miss=99), context)


def _done_all_the_same(apply: Any) -> Any:
    def applied(self: Any, desired: Any, observation: Any, decision: Any) -> Any:
        actions = tuple(msgspec.structs.replace(action, shadow=False) for action in decision.actions)
        return apply(self, desired, observation, replace(decision, actions=actions))

    return applied


MUTANTS = (
    _mutant("intent lookup skipped", Resolver, "_resolve", _instead(_forget_intent)),
    _mutant("lost reply taken for a refusal", Creator, "_failed", _instead(_refuse_unknown)),
    _mutant("token of the attempt", ProviderCalls, "create", _renamed_orders),
    _mutant("order before its intent", WriteBehindStore, "committed", _instead(_nothing)),
    Mutant(
        name="cap of nodes off by one",
        patches=((headroom, "machine_count", _one_less), (placement, "machine_count", _one_less)),
    ),
    _mutant("backoff ignored", launch_backoff, "backoff_s", _instead(lambda _failures: 0.0)),
    _mutant("throttling ignored", ProviderCalls, "_closed_for_s", _instead(lambda _self, _operation: 0.0)),
    _mutant("cool-off ignored", Offerings, "unobtainable", _instead(lambda _self: frozenset())),
    _mutant("scale-down at once", scaling, "_calm_s", _instead(lambda _view, _memory: 0.0)),
    _mutant("ladder hold ignored", overload, "_CALM_AFTER_S", _instead(0.0)),
    _mutant("orphaned nodes left", fleet, "stop_orphaned_nodes", _instead(lambda *_args: ())),
    _mutant("table never sent", Publisher, "publish", _instead(_nothing)),
    _mutant("admitted cold", Warmups, "is_warm", _instead(lambda _self, _id: True)),
    Mutant(
        name="absence believed at once",
        patches=(
            (lifecycle, "ABSENT_READINGS_BELIEVED", _instead(0)),
            (vanished, "ABSENT_READINGS_BELIEVED", _instead(0)),
            (limits, "ABSENT_READINGS_BELIEVED", _instead(0)),
        ),
    ),
    _mutant("stops not journalled", Journal, "decided", _instead(lambda *_args: None)),
    _mutant("clock step unseen", ClockWatch, "step", _instead(lambda _self: None)),
    _mutant("lease not checked", leases, "check", _instead(lambda _db, _lease: None)),
    _mutant("clock moved in several writes", WriteBehindStore, "shift_clock", _apart),
    _mutant("stop before its line", WriteBehindStore, "journalled", _instead(_nothing)),
    _mutant(
        "outdated replicas left",
        balance,
        "drain_superseded",
        _instead(lambda lane, _context: lane),
        seeds_from=WIDE_FROM,
    ),
    _mutant("rollout drains first", balance, "drain_superseded", _drained_first, seeds_from=WIDE_FROM),
    _mutant("shadow mode acts", Applier, "apply", _done_all_the_same, seeds_from=WATCHED_FROM),
    _mutant(
        "shared intents not kept", WriteBehindStore, "put_shared", _instead(lambda *_args: None), seeds_from=WIDE_FROM
    ),
    _mutant("drain request ignored", balance, "_drain_requested", _instead(lambda lane, *_args: (lane, ()))),
)
