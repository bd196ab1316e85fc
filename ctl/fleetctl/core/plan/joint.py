"""Chooses every lane's option together: the cheapest combination within caps, limits and the GPUs that are there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fleetctl.core.plan.one_machine import lacking_gpus
from fleetctl.core.plan.options import MACHINE_USD, Option, counted, smaller, sold, takes_scarce
from fleetctl.core.plan.program import IntegerProgram, LinearConstraint
from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.plan import MachineCount
from fleetctl.model.profile import CapacitySpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.plan.program import Solve

_OPTIONS_MAX: Final = 60  # of a lane, the cheapest: what is dearer than so many others is no way out
_ENUMERATED_MAX: Final = 4096  # combinations that are looked at one by one
_COMPARED_MAX: Final = 6  # options of a lane then: the cheapest, and those with fewer nodes
_FREE_GPU_USD: Final = 1e-4  # among equals free GPUs that stay free


def choose_together(
    capacity: CapacitySpec, options: Sequence[Sequence[Option]], *, head_usd_per_hour: float, solve: Solve | None
) -> tuple[Option, ...]:
    """Return each lane's option, `options` having the cheapest first: the cheapest combination that keeps everything.

    Where each lane's cheapest fit together they are it. Else an integer program decides over options, types and counts of
    machines at once; without a solver combinations are compared one by one. Where nothing fits, the combination of the
    fewest nodes. Raises InfeasiblePlanError where GPUs lack, or a limit is crossed whatever is chosen.
    """
    first = tuple(each[0] for each in options)
    if is_within(capacity, first, head_usd_per_hour=head_usd_per_hour):
        return first
    if solve is not None:
        found = _Stated(
            capacity, _undominated(capacity, [each[:_OPTIONS_MAX] for each in options]), head_usd_per_hour
        ).solved(solve)
        if found is not None:
            return found
    return _compared(capacity, [_worthwhile(each) for each in options])


def choose_promising(
    capacity: CapacitySpec, options: Sequence[Sequence[Option]], *, head_usd_per_hour: float, solve: Solve | None
) -> tuple[Option, ...] | None:
    """Return what `choose_together` would, of the lanes' promising options alone; None where these do not decide it.

    They do while the cap on nodes does not bind: whatever was left out could be replaced by what is cheaper, and takes
    nothing scarce.
    """
    if not all(options):
        return None
    first = tuple(each[0] for each in options)
    if is_within(capacity, first, head_usd_per_hour=head_usd_per_hour):
        return first
    if solve is None or _may_bind_nodes(capacity, options):
        return None
    return _Stated(capacity, _undominated(capacity, options), head_usd_per_hour).solved(solve)


def is_within(capacity: CapacitySpec, chosen: Sequence[Option], *, head_usd_per_hour: float) -> bool:
    """Whether options keep caps and limits together, and find their GPUs."""
    most = capacity.max_cost_usd_per_hour
    cost = math.fsum(o.cost_usd_per_hour for o in chosen) + head_usd_per_hour
    return (
        sum(o.nodes for o in chosen) <= capacity.max_nodes
        and (most is None or cost <= most + 1e-9)
        and lacking_gpus(o.gpu_demand for o in chosen) is None
        and not crossed(capacity, chosen)
    )


def crossed(capacity: CapacitySpec, chosen: Iterable[Option]) -> dict[str, int]:
    """Return the limits that options cross together, with what they take of each."""
    taken = dict.fromkeys(capacity.limits, 0)
    for option in chosen:
        for each in option.machines:
            if each.offering.instance_type in taken:
                taken[each.offering.instance_type] += each.machines * option.result.instance.node_count
    return {name: count for name, count in taken.items() if count > capacity.limits[name]}


def _undominated(capacity: CapacitySpec, options: Sequence[Sequence[Option]]) -> list[list[Option]]:
    """Keep of each lane the options that a solution may need: not those that one which takes nothing scarce beats.

    Each is compared at the least that it could cost on any mix of its machines, and where the cap on nodes may bind at the
    fewest that it could take: none that is dropped could have been in a cheaper combination.
    """
    counts_nodes = _may_bind_nodes(capacity, options)
    return [_unbeaten(capacity, each, counts_nodes=counts_nodes) for each in options]


def _may_bind_nodes(capacity: CapacitySpec, options: Sequence[Sequence[Option]]) -> bool:
    most = sum(max(o.markets.replicas * o.result.instance.node_count for o in each) for each in options)
    return most > capacity.max_nodes


def _unbeaten(capacity: CapacitySpec, options: Sequence[Option], *, counts_nodes: bool) -> list[Option]:
    free = [
        (number, o.tied_usd_per_hour, o.nodes if counts_nodes else 0)
        for number, o in enumerate(options)
        if o.cost_usd_per_hour > 0.0 and not takes_scarce(capacity, o)
    ]
    kept = []
    for number, option in enumerate(options):
        least_usd, fewest = _least(option)
        usd, nodes = least_usd + MACHINE_USD * fewest, fewest if counts_nodes else 0
        # Of equals, which beat each other, the first stays.
        is_beaten = any(
            their_usd <= usd and their_nodes <= nodes and (other < number or (their_usd, their_nodes) != (usd, nodes))
            for other, their_usd, their_nodes in free
            if other != number
        )
        if not is_beaten:
            kept.append(option)
    return kept


def _least(option: Option) -> tuple[float, int]:
    """Return the least that an option could cost an hour, and the fewest nodes it could take, on any mix of its machines."""
    own, usd, nodes = option.result.instance, 0.0, 0
    for market, count in counted(option.markets):
        sizes = [(one, sold(one, market) or own.cheapest) for one in (own, *smaller(option, market))]
        usd += count * min(offering.price_usd_per_hour / one.replicas_each_machine for one, offering in sizes)
        nodes += -(-count // max(one.replicas_each_machine for one, _ in sizes))
    return usd * own.node_count, nodes * own.node_count


def _worthwhile(options: Sequence[Option]) -> list[Option]:
    """Keep the cheapest, and dearer ones only where they need fewer nodes."""
    kept: list[Option] = []
    for option in options:
        if not kept or option.nodes < kept[-1].nodes:
            kept.append(option)
    return kept[:_COMPARED_MAX]


def _compared(capacity: CapacitySpec, options: list[list[Option]]) -> tuple[Option, ...]:
    """Return the cheapest combination whose nodes fit the cap, or that of the fewest nodes where none does.

    Raises InfeasiblePlanError where every one takes more GPUs than are there, or than a limit allows.
    """
    while math.prod(map(len, options)) > _ENUMERATED_MAX:
        longest = max(options, key=len)
        longest.pop()
    ranked = sorted(
        itertools.product(*options),
        key=lambda c: (math.fsum(o.cost_usd_per_hour for o in c), sum(o.free_gpus for o in c), [o.key for o in c]),
    )
    lacks = [lacking_gpus(o.gpu_demand for o in c) for c in ranked]
    if lacks[0] is not None and all(lack is not None for lack in lacks):
        raise lacks[0]
    ranked = [c for c, lack in zip(ranked, lacks, strict=True) if lack is None]
    allowed = [c for c in ranked if not crossed(capacity, c)]
    if not allowed:
        raise _over_limits(capacity, ranked[0])
    fitting = [c for c in allowed if sum(o.nodes for o in c) <= capacity.max_nodes]
    return fitting[0] if fitting else min(allowed, key=lambda c: sum(o.nodes for o in c))


def _over_limits(capacity: CapacitySpec, cheapest: Sequence[Option]) -> InfeasiblePlanError:
    over = crossed(capacity, cheapest)
    parts = ", ".join(
        f"{count} {name} of the {capacity.limits[name]} that capacity.limits allows" for name, count in over.items()
    )
    name = next(iter(over))
    return InfeasiblePlanError(
        f"no mix of machines carries the lanes within capacity.limits; the cheapest takes {parts}",
        hint=f"raise the limit of {name} to {over[name]}, allow other gpus, or relax the lanes' promises",
        key=("capacity", "limits", name),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bought:
    """A variable of the program: machines of one offering for one option."""

    option: Option
    market: Market
    offering: Offering
    replicas_each: int

    @property
    def machines_each(self) -> int:
        """Return the machines under one unit of it: several where a replica spans them."""
        return self.option.result.instance.node_count


@dataclass(slots=True)
class _Stated:
    """The program over every lane's options: which of them, and how many machines of which types."""

    capacity: CapacitySpec
    options: Sequence[Sequence[Option]]
    head_usd_per_hour: float
    chosen: list[Option] = field(default_factory=list)  # a variable each, 0 or 1
    bought: list[_Bought] = field(default_factory=list)  # a variable each, behind those
    rows: list[LinearConstraint] = field(default_factory=list)

    def solved(self, solve: Solve) -> tuple[Option, ...] | None:
        """Return each lane's option with its machines; None: nothing keeps everything."""
        for each in self.options:
            self._one_of(each)
        numbers = range(len(self.chosen), len(self.chosen) + len(self.bought))
        own = list(zip(numbers, self.bought, strict=True))
        for option_number, option in enumerate(self.chosen):
            self._carried(option_number, option, [(n, b) for n, b in own if b.option is option])
        self._caps(own)
        values = solve(self._program())
        if values is None:
            return None
        return tuple(
            _with_machines(option, [(b, values[n]) for n, b in own if b.option is option])
            for number, option in enumerate(self.chosen)
            if values[number]
        )

    def _one_of(self, options: Sequence[Option]) -> None:
        first = len(self.chosen)
        self.chosen += options
        self.rows.append(_row([(first + n, 1.0) for n in range(len(options))], low=1.0, high=1.0))
        for option in options:
            for market, _ in counted(option.markets):
                own = option.result.instance
                for one in (own, *smaller(option, market)):
                    offering = sold(one, market) or own.cheapest
                    self.bought.append(
                        _Bought(
                            option=option, market=market, offering=offering, replicas_each=one.replicas_each_machine
                        )
                    )

    def _carried(self, number: int, option: Option, bought: Sequence[tuple[int, _Bought]]) -> None:
        """State that an option that is chosen has machines for its replicas, one at least of its own type."""
        for market, count in counted(option.markets):
            here = [(n, b) for n, b in bought if b.market is market]
            capacity_terms = [(n, float(b.replicas_each)) for n, b in here]
            self.rows.append(_row([*capacity_terms, (number, -float(count))], low=0.0))
            self.rows.append(_row([(here[0][0], 1.0), (number, -1.0)], low=0.0))

    def _caps(self, own: Sequence[tuple[int, _Bought]]) -> None:
        capacity = self.capacity
        self.rows.append(_row([(n, float(b.machines_each)) for n, b in own], high=capacity.max_nodes))
        if capacity.max_cost_usd_per_hour is not None:
            left = capacity.max_cost_usd_per_hour - self.head_usd_per_hour + 1e-9
            self.rows.append(_row([(n, _usd(b)) for n, b in own], high=left))
        for name, most in capacity.limits.items():
            terms = [(n, float(b.machines_each)) for n, b in own if b.offering.instance_type == name]
            self.rows.append(_row(terms, high=most))
        pools = {b.offering.gpu: b.offering.pool_gpus for _, b in own if b.offering.pool_gpus is not None}
        for gpu, there in pools.items():
            takers = [(n, b) for n, b in own if b.offering.gpu == gpu and b.offering.pool_gpus is not None]
            terms = [(n, float(b.option.gpu_demand.gpus_each * b.replicas_each)) for n, b in takers]
            self.rows.append(_row(terms, high=there))

    def _program(self) -> IntegerProgram:
        free = [option.free_gpus * _FREE_GPU_USD for option in self.chosen]
        costs = [_usd(b) + MACHINE_USD * b.machines_each for b in self.bought]
        most = [math.ceil(b.option.markets.replicas / b.replicas_each) for b in self.bought]
        return IntegerProgram(
            costs=(*free, *costs),
            most=(*(1.0 for _ in self.chosen), *map(float, most)),
            rows=tuple(row for row in self.rows if row.terms),
        )


def _row(terms: Sequence[tuple[int, float]], *, low: float = -math.inf, high: float = math.inf) -> LinearConstraint:
    return LinearConstraint(terms=tuple(terms), low=low, high=high)


def _usd(bought: _Bought) -> float:
    return bought.offering.price_usd_per_hour * bought.machines_each


def _with_machines(option: Option, bought: Sequence[tuple[_Bought, int]]) -> Option:
    machines = tuple(MachineCount(offering=b.offering, machines=count) for b, count in bought if count)
    return replace(option, machines=machines)


def mix_text(machines: Sequence[MachineCount]) -> str:
    """Return machines in words: "3 x p5.48xlarge on demand and 2 x p5.4xlarge on spot"."""
    return " and ".join(
        f"{each.machines} x {each.offering.instance_type} {'on demand' if each.offering.market == 'on-demand' else 'on spot'}"
        for each in machines
    )
