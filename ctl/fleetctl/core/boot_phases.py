"""How far a start has come, phase by phase, which phase takes longer than usual, and what to look at then."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Final

from fleetctl.model.boot import LOADING, REQUESTED, WARM_UP, WEIGHTS, BootPhase, BootStep
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.node import BootProgress
    from fleetctl.model.replica import Replica

# Where neither the provider nor an earlier start says what is usual. An image is some 10 GB and weights of one node rarely
# more than 150 GB, at the 250 MB/s that hubs and registries give; engines load and compile for minutes.
_KNOWN: Final = (
    BootPhase(name=REQUESTED, usual_s=90.0, look="what the provider answers: fleetctl events {fleet}"),
    BootPhase(name="launching", usual_s=180.0, look="the machine's own state at its provider: {node}"),
    BootPhase(name="image", usual_s=600.0, look="the registry's rate limits, and the node's way to it"),
    BootPhase(name=WEIGHTS, usual_s=900.0, look="the node's way to the model's hub: fleetctl logs {replica} --fleet {fleet}"),
    BootPhase(name=LOADING, usual_s=600.0, look="what its engine says: fleetctl logs {replica} --fleet {fleet}"),
    BootPhase(name=WARM_UP, usual_s=60.0, look="what its first completion ended with: fleetctl why {replica} --fleet {fleet}"),
)  # fmt: skip
_USUAL_S = 300.0  # of a phase that only the provider has a name for
_LOOK = "fleetctl why {replica} --fleet {fleet}"
# Longer than others took by so much is longer than usual; a few seconds on a busy machine are not.
_BEYOND_MEDIAN, _BEYOND_SLOWEST, _BEYOND_S_MIN = 2.0, 1.2, 20.0
# A node's clock is this far behind at most; what it tells of before its order is of the engine that its slot had then.
_SKEW = timedelta(seconds=5)
_STARTING = frozenset({ReplicaState.PENDING, ReplicaState.BOOTING, ReplicaState.WARMING})


def boot_steps(
    record: Replica,
    reported: BootProgress | None,
    before: tuple[BootStep, ...],
    *,
    now: datetime,
    is_node_running: bool = True,
) -> tuple[BootStep, ...]:
    """Return the phases that a start has come to, oldest first; empty: it has started once, or does not start.

    `reported` is what its node or its provider says now, `before` what this returned last, empty for a controller that has
    just begun: the record and what nodes tell of earlier phases stand in for it. Until its node is seen to run
    nothing says that the engine starts. Instants are put in order, since a
    node's clock may not agree with this one.
    """
    if record.state not in _STARTING or record.ready_at is not None:
        return ()
    steps = [BootStep(phase=REQUESTED, began_at=record.requested_at)]
    earliest = record.requested_at - _SKEW
    reported_steps = (
        _in_order([step for step in reported.steps if step.began_at >= earliest], now) if reported is not None else []
    )
    steps += _known_before(before, reported_steps)
    steps += reported_steps
    is_untold = record.state is ReplicaState.BOOTING and reported is None and not is_node_running
    phase = steps[-1].phase if is_untold else _phase(record, reported)
    if steps[-1].phase != phase:
        is_first = len(steps) == 1 or record.state is ReplicaState.WARMING
        steps.append(BootStep(phase=phase, began_at=record.changed_at if is_first else now))
    return tuple(_in_order(steps, now))


def phase_times_s(steps: Iterable[BootStep], *, until: datetime) -> tuple[tuple[str, float], ...]:
    """Return each phase with the seconds it took, the last one's until `until`; one that came again is one with its first."""
    steps = tuple(steps)
    ends = [*(each.began_at for each in steps[1:]), until][: len(steps)]
    taken: dict[str, float] = {}
    for step, end in zip(steps, ends, strict=True):
        taken[step.phase] = taken.get(step.phase, 0.0) + max(0.0, (end - step.began_at).total_seconds())
    return tuple(taken.items())


class MeasuredPhases:
    """How long phases took for replicas that became ready; worked out once for all that start, where any does."""

    def __init__(self, records: Iterable[Replica]) -> None:
        self._records = records
        self._found: dict[tuple[str, str, str], tuple[float, float]] | None = None

    def of(self, phase: str, record: Replica) -> tuple[float, float] | None:
        """Return how long a phase took for the earlier replicas of the lane on this offering: the median and the most, in seconds."""
        if self._found is None:
            self._found = {kind: (median(each), max(each)) for kind, each in self._taken().items()}
        return self._found.get((record.lane, record.offering, phase))

    def _taken(self) -> dict[tuple[str, str, str], list[float]]:
        found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for each in self._records:
            if each.boot_steps and each.ready_at is not None:
                for name, taken_s in phase_times_s(each.boot_steps, until=each.ready_at):
                    found[each.lane, each.offering, name].append(taken_s)
        return found


def boot_concern(
    record: Replica,
    steps: tuple[BootStep, ...],
    others: MeasuredPhases,
    declared: tuple[BootPhase, ...],
    *,
    now: datetime,
) -> str:
    """Return which phase takes longer than usual and what to look at; empty: none does.

    Usual is what replicas of the same lane took on the same offering; where none has, what the provider declares, and
    then what is known of the phase.
    """
    if not steps:
        return ""
    phase, taken_s = steps[-1].phase, dict(phase_times_s(steps, until=now))[steps[-1].phase]
    known = _known_phase(phase, declared)
    if taken_s <= min(_BEYOND_S_MIN, known.usual_s):
        return ""
    measured = others.of(phase, record)
    if measured:
        median_s, slowest_s = measured
        limit_s = max(_BEYOND_MEDIAN * median_s, _BEYOND_SLOWEST * slowest_s, _BEYOND_S_MIN)
        usual = f"others took {format_duration(float(round(median_s, 1)))}"
    else:
        limit_s, usual = known.usual_s, f"usually under {format_duration(known.usual_s)}"
    if taken_s <= limit_s:
        return ""
    look = known.look
    for name, value in (("fleet", record.fleet), ("replica", record.id), ("node", record.node_id or "no node yet")):
        look = look.replace(f"{{{name}}}", value)
    return f"{phase} for {format_duration(float(round(taken_s)))}, {usual}: look at {look}"


def _phase(record: Replica, reported: BootProgress | None) -> str:
    if record.state is ReplicaState.PENDING:
        return REQUESTED
    if record.state is ReplicaState.WARMING:
        return WARM_UP
    return reported.phase if reported is not None else LOADING


def _known_before(before: tuple[BootStep, ...], reported: list[BootStep]) -> list[BootStep]:
    """Return what was seen from here before the node reported of itself, and what it does not tell."""
    if not reported:
        return [step for step in before if step.phase != REQUESTED]
    begin, phases = reported[0].began_at, {step.phase for step in reported}
    return [s for s in before if s.phase != REQUESTED and s.phase not in phases and s.began_at < begin]


def _in_order(steps: list[BootStep], now: datetime) -> list[BootStep]:
    found: list[BootStep] = []
    for step in steps:
        began_at = min(step.began_at, now)
        began_at = max(began_at, found[-1].began_at) if found else began_at
        found.append(step if began_at == step.began_at else BootStep(phase=step.phase, began_at=began_at))
    return found


def _known_phase(phase: str, declared: tuple[BootPhase, ...]) -> BootPhase:
    named = (each for each in (*declared, *_KNOWN) if each.name == phase)
    return next(named, BootPhase(name=phase, usual_s=_USUAL_S, look=_LOOK))
