"""What goes wrong in one run, and when: a schedule made of a seed alone, whose parts can be left out one by one."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class FaultKind(StrEnum):
    """The kinds of things that go wrong, and what people do meanwhile."""

    # At the provider's calls, for a while
    THROTTLED = "throttled"
    REFUSED = "refused"  # an error, and no effect
    LOST_REQUEST = "lost-request"  # cut off before its effect
    LOST_REPLY = "lost-reply"  # it happened, and nobody hears of it
    HUNG = "hung"  # never answered
    SLOW = "slow"
    DUPLICATED = "duplicated"  # what was taken arrives again, later
    PARTIAL_BATCH = "partial-batch"  # the orders of one batch fare differently
    PARTIAL_LISTING = "partial-listing"
    STALE_LISTING = "stale-listing"  # as old as the provider says it may be
    EVENTS_LOST = "events-lost"
    NO_STOCK = "no-stock"
    QUOTA = "quota"
    CREDENTIALS = "credentials"
    # To nodes and engines
    SLOW_BOOT = "slow-boot"
    NO_BOOT = "no-boot"
    SLOW_END = "slow-end"
    UNHEALTHY = "unhealthy"
    NO_COMPLETION = "no-completion"  # its completions fail
    HUNG_COMPLETION = "hung-completion"
    NODE_DIES = "node-dies"
    SPOT_NOTICE = "spot-notice"
    SPOT_LOSS = "spot-loss"
    HINT = "hint"  # a notice that may come to nothing
    ORPHAN = "orphan"  # a node with our tags, of an order that no record knows
    # To the controller, its clock and its store
    CRASH = "crash"
    RESTART = "restart"  # asked to go
    FENCED = "fenced"  # another takes over while it goes on
    CLOCK_STEP = "clock-step"
    STORE_LOCKED = "store-locked"
    STORE_FULL = "store-full"
    STORE_SLOW = "store-slow"
    # To the gateway
    GATEWAY_DIES = "gateway-dies"
    GATEWAY_SILENT = "gateway-silent"
    GATEWAY_LOSES_REPLY = "gateway-loses-reply"
    # What people and load do
    LOAD = "load"
    SCALE = "scale"
    SHED = "shed"
    LET_GO = "let-go"
    DRAIN = "drain"
    UP_CHANGED = "up-changed"
    DOWN_AND_UP = "down-and-up"
    # In wide fleets alone
    MEMBER_DIES = "member-dies"  # one machine of a group
    ROLLOUT = "rollout"  # `up` with other engine flags
    BAD_ROLLOUT = "bad-rollout"  # with flags under which no engine becomes healthy
    ROLLOUT_PAUSE = "rollout-pause"
    ROLLOUT_RESUME = "rollout-resume"
    ROLLOUT_UNDO = "rollout-undo"
    SHADOW = "shadow"  # for a while the controller only watches


WIDE_KINDS = (
    FaultKind.MEMBER_DIES, FaultKind.ROLLOUT, FaultKind.BAD_ROLLOUT, FaultKind.ROLLOUT_PAUSE, FaultKind.ROLLOUT_RESUME,
    FaultKind.ROLLOUT_UNDO, FaultKind.SHADOW,
)  # fmt: skip
PLAIN_KINDS = tuple(kind for kind in FaultKind if kind not in WIDE_KINDS)
PROVIDER_CALLS = ("create", "stop", "list_nodes", "describe", "offerings", "listen_addresses")
_ANY_CALL = (
    FaultKind.THROTTLED, FaultKind.REFUSED, FaultKind.LOST_REQUEST, FaultKind.LOST_REPLY, FaultKind.HUNG, FaultKind.SLOW,
)  # fmt: skip
_WINDOWS = frozenset(
    {
        *_ANY_CALL,
        *(FaultKind.DUPLICATED, FaultKind.PARTIAL_BATCH, FaultKind.PARTIAL_LISTING, FaultKind.STALE_LISTING),
        *(FaultKind.EVENTS_LOST, FaultKind.NO_STOCK, FaultKind.QUOTA, FaultKind.CREDENTIALS, FaultKind.SLOW_BOOT),
        *(FaultKind.NO_BOOT, FaultKind.SLOW_END, FaultKind.UNHEALTHY, FaultKind.NO_COMPLETION),
        *(FaultKind.HUNG_COMPLETION, FaultKind.STORE_LOCKED, FaultKind.STORE_FULL, FaultKind.STORE_SLOW),
        *(FaultKind.GATEWAY_SILENT, FaultKind.GATEWAY_LOSES_REPLY, FaultKind.FENCED, FaultKind.DOWN_AND_UP),
        FaultKind.SHADOW,
    }
)
_WEIGHTS = {
    FaultKind.CRASH: 4.0, FaultKind.LOST_REPLY: 3.0, FaultKind.NODE_DIES: 2.0, FaultKind.SPOT_NOTICE: 2.0,
    FaultKind.LOAD: 3.0, FaultKind.THROTTLED: 1.5, FaultKind.HUNG: 1.5, FaultKind.PARTIAL_BATCH: 1.5,
    FaultKind.CREDENTIALS: 0.4, FaultKind.QUOTA: 0.5, FaultKind.NO_BOOT: 0.6,
}  # fmt: skip
_WIDE_WEIGHTS = {
    **_WEIGHTS, FaultKind.ROLLOUT: 8.0, FaultKind.BAD_ROLLOUT: 2.0, FaultKind.ROLLOUT_PAUSE: 3.0,
    FaultKind.ROLLOUT_RESUME: 3.0, FaultKind.ROLLOUT_UNDO: 4.0, FaultKind.STORE_LOCKED: 3.0, FaultKind.SHADOW: 1.5,
    FaultKind.MEMBER_DIES: 2.0,
}  # fmt: skip
_WIDE_CALLS = ("", *PROVIDER_CALLS, "create", "create", "stop", "prepare", "prepare", "teardown")
_PLAIN_CALLS = ("", *PROVIDER_CALLS, "create", "create", "stop")
# A window is drawn log-uniformly: most are a blink, some outlast every deadline.
_WINDOW_S_MIN, _WINDOW_S_MAX = 0.5, 40.0
FAULTS_MIN, FAULTS_MAX = 4, 16
# Of watched fleets: when that begins and how long before the end it is over, and what happens so long after its beginning.
_WATCHED_S, _WATCHED_UNTIL_S, _REASON_S, _REASONS_MAX = (30.0, 36.0), 2.0, (5.0, 12.0), 5
_REASONS_TO_ACT = (
    FaultKind.LOAD, FaultKind.LOAD, FaultKind.HINT, FaultKind.SPOT_NOTICE, FaultKind.SPOT_LOSS, FaultKind.NODE_DIES,
    FaultKind.RESTART, FaultKind.CRASH, FaultKind.FENCED, FaultKind.GATEWAY_DIES,
)  # fmt: skip
_HIGH_LOADS = (4, 5)  # places among those of a load


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. `draw` is its own randomness, so leaving out another changes nothing of it."""

    kind: FaultKind
    at_s: float
    for_s: float = 0.0  # 0: an event
    share: float = 1.0  # of the calls in its window
    call: str = ""  # of the provider; empty: every one
    draw: int = 0

    def __str__(self) -> str:
        """Return one line for people."""
        window = f" for {self.for_s:.1f} s" if self.for_s else ""
        of = f" {self.share:.0%} of {self.call or 'all calls'}" if self.kind in _ANY_CALL else ""
        return f"{self.at_s:7.2f} s{window}: {self.kind}{of} (draw {self.draw})"


def schedule(seed: int, *, horizon_s: float, is_wide: bool = False) -> tuple[Fault, ...]:
    """Return what goes wrong under a seed, in order; nothing lasts beyond the horizon."""
    dice = random.Random(f"{seed}/schedule")
    kinds = list(FaultKind) if is_wide else list(PLAIN_KINDS)
    weights = [(_WIDE_WEIGHTS if is_wide else _WEIGHTS).get(kind, 1.0) for kind in kinds]
    calls = _WIDE_CALLS if is_wide else _PLAIN_CALLS
    faults = [
        _fault(dice, kind, horizon_s, calls)
        for kind in dice.choices(kinds, weights, k=dice.randint(FAULTS_MIN, FAULTS_MAX))
    ]
    return tuple(sorted(faults, key=lambda fault: (fault.at_s, fault.kind, fault.draw)))


def watched_schedule(seed: int, *, horizon_s: float) -> tuple[Fault, ...]:
    """Return what becomes of a fleet that is at rest when its controller is put into shadow mode: reasons to act, in order.

    Much load first, so that one more replica would be ordered; then nodes that are to be replaced, and controllers that
    begin anew in the middle of it.
    """
    dice = random.Random(f"{seed}/watched")
    begun_s = round(dice.uniform(*_WATCHED_S), 2)
    for_s = horizon_s - begun_s - _WATCHED_UNTIL_S
    kinds = dice.choices(_REASONS_TO_ACT, k=dice.randint(1, _REASONS_MAX))
    happening = [FaultKind.LOAD, *kinds]
    faults = [
        Fault(kind=kind, at_s=round(begun_s + dice.uniform(*_REASON_S), 2), draw=_draw(dice, kind))
        for kind in happening
    ]
    watched = Fault(kind=FaultKind.SHADOW, at_s=begun_s, for_s=round(for_s, 2), draw=dice.randrange(1_000_000))
    return tuple(sorted([watched, *faults], key=lambda fault: (fault.at_s, fault.kind, fault.draw)))


def _draw(dice: random.Random, kind: FaultKind) -> int:
    """Return a fault's own randomness; of load, that it is as much as there is."""
    return dice.randrange(2) + 2 * dice.choice(_HIGH_LOADS) if kind is FaultKind.LOAD else dice.randrange(1_000_000)


def _fault(dice: random.Random, kind: FaultKind, horizon_s: float, calls: tuple[str, ...]) -> Fault:
    at_s = round(dice.uniform(0.0, 0.9 * horizon_s), 2)
    for_s = 0.0
    if kind in _WINDOWS:
        drawn_s = _WINDOW_S_MIN * (_WINDOW_S_MAX / _WINDOW_S_MIN) ** dice.random()
        for_s = round(min(drawn_s, horizon_s - at_s), 2)
    call = dice.choice(calls) if kind in _ANY_CALL else ""
    share = dice.choice((0.3, 0.6, 1.0)) if kind in _WINDOWS else 1.0
    return Fault(kind=kind, at_s=at_s, for_s=for_s, share=share, call=call, draw=dice.randrange(1_000_000))


class Injector:
    """Says at every call whether a fault strikes it. Each fault throws its own dice."""

    def __init__(self, faults: Iterable[Fault], now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._windows: dict[FaultKind, list[tuple[Fault, random.Random]]] = defaultdict(list)
        for fault in faults:
            if fault.for_s > 0.0:
                self._windows[fault.kind].append((fault, random.Random(f"{fault.kind}/{fault.draw}")))

    def strikes(self, kind: FaultKind, call: str = "") -> Fault | None:
        """Return the fault of this kind that strikes a call made now."""
        for fault, dice in self._windows.get(kind, ()):
            is_open = fault.at_s <= self._now_s() < fault.at_s + fault.for_s
            if is_open and fault.call in ("", call) and dice.random() < fault.share:
                return fault
        return None

    def is_open(self, kind: FaultKind) -> bool:
        """Whether a window of this kind is open now."""
        now_s = self._now_s()
        return any(fault.at_s <= now_s < fault.at_s + fault.for_s for fault, _ in self._windows.get(kind, ()))

    def is_open_since(self, kinds: Iterable[FaultKind], seconds: float) -> bool:
        """Whether a window of one of these kinds is open, or was within the last `seconds`."""
        now_s = self._now_s()
        return any(
            fault.at_s <= now_s < fault.at_s + fault.for_s + seconds
            for kind in kinds
            for fault, _ in self._windows.get(kind, ())
        )
