"""One run of one contender: a policy behind a gateway, on a scenario, with a seed; and the file that runs are kept in."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.core.static_policy import static
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from tests.bench.policies.clairvoyant import ScheduleSettings, search
from tests.bench.policies.peers.catalogue import OWN_GATEWAY, PLAIN_GATEWAY, RULES, dispatcher_of, policy_of
from tests.bench.policies.peers.fleetopt import planned_replicas
from tests.bench.policies.scenarios import SCENARIOS
from tests.bench.policies.spot_scenarios import (
    REPLICAS,
    SPOT_POLICIES,
    SPOT_SCENARIOS,
    SPOT_TRACES_ENV,
    about,
    spot_runs,
)
from tests.bench.policies.spot_world import ON_DEMAND_PRICE
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.load.trace import Arrival
    from fleetctl.model.desired import Desired
    from fleetctl.ports.policy import Policy
    from fleetctl.sim.result import SimulationResult
    from tests.bench.policies.cases import Case

CLAIRVOYANT = "clairvoyant"
STATIC_PLAN = "static-plan"
_PARTS = 1_000_000  # of the time that a spot record is replayed for
_BY_SIZE = frozenset({STATIC_PLAN, "fleetopt"})  # they never scale, and begin with the count they stand for


@dataclass(frozen=True, slots=True, order=True)
class Contender:
    """A policy and the gateway that it stands behind."""

    policy: str
    gateway: str = OWN_GATEWAY

    @classmethod
    def parse(cls, text: str) -> Contender:
        """Read `POLICY` or `POLICY@GATEWAY`; `@plain` is the gateway that the peer is published with. Raises KeyError."""
        policy, _, gateway = text.partition("@")
        if gateway == "plain":
            gateway = PLAIN_GATEWAY.get(policy, "power-of-two")
        dispatcher_of(gateway or OWN_GATEWAY)
        return cls(policy, gateway or OWN_GATEWAY)

    def __str__(self) -> str:
        return self.policy if self.gateway == OWN_GATEWAY else f"{self.policy}@{self.gateway}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFigures:
    """One lane of one run."""

    offered: int
    good: int
    refused: int
    ttft_s_p99: float
    missed: dict[str, int]  # by BreachKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LaboratoryRun:
    """What one contender made of one scenario with one seed; a line of the file."""

    scenario: str
    contender: str
    seed: int
    commit: str
    lanes: dict[str, LaneFigures] = field(default_factory=dict)
    replicas: float = 0.0
    usd_per_hour: float = 0.0
    reversals: int = 0
    good_rps: float = 0.0
    requests: int = 0
    took_s: float = 0.0
    settings: ScheduleSettings | None = None  # of the clairvoyant
    missing: str = ""  # why there are no figures

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Return what makes it the same run."""
        return (self.scenario, self.contender, self.seed, self.commit)


def autoscalers() -> list[Contender]:
    """Return every policy behind the project's gateway, the peers behind their own too, and the bound."""
    own = [Contender(name) for name in ("built-in", STATIC_PLAN, *RULES)]
    plain = [Contender(name, gateway) for name, gateway in PLAIN_GATEWAY.items()]
    return [Contender(CLAIRVOYANT), *own, *plain]


def routers() -> list[Contender]:
    """Return every gateway over engines whose number is fixed, each with one pool, and the project's own in its lanes."""
    names = (
        "round-robin", "power-of-two", "least-outstanding", "length-buckets", "predicted-ttft", "picker",
        "picker-sheddable", "picker-flow-control", "picker-capped",
    )  # fmt: skip
    return [Contender("static"), *(Contender("static", f"pool/{name}") for name in names)]


def contenders(scenario: str) -> list[Contender]:
    """Return who is measured on a scenario unless somebody is named."""
    if scenario in SPOT_SCENARIOS:
        return [Contender(name) for name in SPOT_POLICIES]
    return routers() if SCENARIOS[scenario].policy == "static" else autoscalers()


def scenarios() -> dict[str, str]:
    """Return what every scenario is about, by name."""
    spot = {name: about(name) for name in SPOT_SCENARIOS}
    return {**{name: case.about for name, case in SCENARIOS.items()}, **spot}


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the last commit that changed what decides, `ctl/fleetctl/core`, with a plus where it has changed since."""
    root = Path(__file__).resolve().parents[3]

    def git(*arguments: str) -> str:
        done = subprocess.run(
            [shutil.which("git") or "git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    measured = "ctl/fleetctl/core"
    changed = git("status", "--porcelain", "--", measured)
    return (git("log", "-1", "--format=%h", "--", measured) or "unknown") + ("+" if changed else "")


def run(
    scenario: str, contender: Contender, seed: int, *, trace: str = "", known: ScheduleSettings | None = None
) -> LaboratoryRun:
    """Return what a contender makes of a scenario. `known`: the settings of the bound with another seed."""
    if scenario in SPOT_SCENARIOS:
        return _spot_run(scenario, contender, seed)
    case, began_s = SCENARIOS[scenario], time.process_time()
    arrivals = list(case.trace(seed, trace))
    settings = None
    if contender.policy == CLAIRVOYANT:
        found = search(case, arrivals, lambda policy: _simulated(case, policy, arrivals, contender, seed), known=known)
        if found is None:
            return LaboratoryRun(
                scenario=scenario, contender=str(contender), seed=seed, commit=commit(),
                missing="no schedule that was tried keeps 99.5 %",
            )  # fmt: skip
        result, settings = found
    else:
        policy = static if contender.policy in _BY_SIZE else policy_of(contender.policy)
        result = _simulated(case, policy, arrivals, contender, seed)
    hours = result.duration_s / 3600.0
    return LaboratoryRun(
        scenario=scenario,
        contender=str(contender),
        seed=seed,
        commit=commit(),
        lanes={
            lane.lane: LaneFigures(
                offered=lane.offered,
                good=lane.good,
                refused=sum(lane.refused.values()),
                ttft_s_p99=lane.ttft.p99_s,
                missed=lane.breached,
            )
            for lane in result.lanes
            if lane.offered
        },
        replicas=result.replicas_mean,
        usd_per_hour=result.cost_usd / hours,
        reversals=sum(lane.reversals for lane in result.lanes),
        good_rps=sum(lane.good for lane in result.lanes) / result.duration_s,
        requests=result.requests,
        took_s=time.process_time() - began_s,
        settings=settings,
    )


def _spot_run(scenario: str, contender: Contender, seed: int) -> LaboratoryRun:
    """Return the share of time with all replicas ready as the good of the one lane, and the price."""
    began_s = time.process_time()
    known = contender.policy in SPOT_POLICIES and contender.gateway == OWN_GATEWAY
    found = spot_runs(scenario, contender.policy, seed) if known else []
    if not found:
        missing = f"set {SPOT_TRACES_ENV} to spot records" if known else "scales by load, not by the market"
        return LaboratoryRun(
            scenario=scenario, contender=str(contender), seed=seed, commit=commit(), missing=missing
        )  # fmt: skip
    ready = statistics.fmean(each.availability for each in found)
    figures = LaneFigures(offered=_PARTS, good=round(ready * _PARTS), refused=0, ttft_s_p99=0.0, missed={})
    return LaboratoryRun(
        scenario=scenario, contender=str(contender), seed=seed, commit=commit(), lanes={"ready": figures},
        replicas=float(REPLICAS), took_s=time.process_time() - began_s,
        usd_per_hour=statistics.fmean(each.cost for each in found) * REPLICAS * ON_DEMAND_PRICE,
    )  # fmt: skip


def _simulated(
    case: Case, policy: Policy, arrivals: Iterable[Arrival], contender: Contender, seed: int
) -> SimulationResult:
    desired = case.desired()
    spec = SimulationSpec(seed=seed, settled=_settled(case, desired, contender) or None, disturbances=case.disturbances)
    spec = replace(spec, **case.spec)  # type: ignore[arg-type]
    return simulate(
        desired, arrivals, policy=policy, policy_name=contender.policy, spec=spec,
        offerings=offerings(boot_s=case.boot_s), dispatcher_of=dispatcher_of(contender.gateway),
    )  # fmt: skip


def _settled(case: Case, desired: Desired, contender: Contender) -> dict[str, int]:
    if contender.policy not in _BY_SIZE or not case.settled:
        return case.settled
    if contender.policy == STATIC_PLAN:
        return {lane.lane: lane.replicas for lane in desired.plan.lanes}
    return planned_replicas(desired)


def read_runs(path: Path) -> list[LaboratoryRun]:
    """Return the runs of a file, without a last line that was cut off; none where there is no file."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the run that was being written when the command was ended
        row["lanes"] = {name: LaneFigures(**figures) for name, figures in row["lanes"].items()}
        row["settings"] = ScheduleSettings(**row["settings"]) if row["settings"] else None
        found.append(LaboratoryRun(**row))
    return found


def append_run(path: Path, finished: LaboratoryRun) -> None:
    """Add a run to a file as one line."""
    with path.open("a") as stream:
        stream.write(json.dumps(asdict(finished)) + "\n")
