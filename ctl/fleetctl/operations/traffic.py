"""Sends load at a fleet or an address, and judges what came back against the lanes' promises."""

from __future__ import annotations

import asyncio
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, UnavailableError
from fleetctl.load.report import LaneFigures, LoadProgress, LoadReport, LoadSpec
from fleetctl.load.runner import run_load
from fleetctl.model.slo import LatencyTarget, Metric, Quantiles
from fleetctl.operations.lookup import chosen_fleet, known_fleet

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.profile import Profile
    from fleetctl.model.slo import LaneSlo
    from fleetctl.operations.site import Site

__all__ = [
    "BackgroundLoad", "LaneFigures", "LaneVerdict", "LoadProgress", "LoadReport", "LoadSpec", "LoadVerdict", "TargetVerdict",
    "address_spec", "fleet_spec", "judge", "measured", "run", "target_profile",
]  # fmt: skip
_FINISH_S = 30.0  # the worker lets in-flight requests finish for some seconds of these
_OBJECTIVE = 0.995  # of an address nobody gave an objective for: the published example's


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """One promise beside what the client measured; `kept` None means there was nothing to measure."""

    target: LatencyTarget
    measured_s: float | None
    samples: int
    kept: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneVerdict:
    """Whether a lane kept its promises under the load; `kept` None means it saw no request or promises nothing."""

    lane: str
    kept: bool | None
    findings: tuple[TargetVerdict, ...]
    reason: str = ""  # why not


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadVerdict:
    """A load run and its verdict."""

    report: LoadReport
    lanes: tuple[LaneVerdict, ...]

    @property
    def kept(self) -> bool:
        """Whether no lane missed its SLO."""
        return all(lane.kept is not False for lane in self.lanes)

    @property
    def missed(self) -> tuple[LaneVerdict, ...]:
        """The lanes that missed theirs."""
        return tuple(lane for lane in self.lanes if lane.kept is False)


def target_profile(site: Site, target: str) -> Profile | None:
    """Return the profile of the fleet called `target` (the only one, if empty), or None for an address."""
    if "://" in target:
        return None
    return known_fleet(site, chosen_fleet(site, target)).profile


def address_spec(url: str) -> LoadSpec:
    """Return a load at an address, shaped like the published conversation trace."""
    return LoadSpec(url=url.removesuffix("/").removesuffix("/v1"))


def fleet_spec(profile: Profile) -> LoadSpec:
    """Return a load at a fleet's gateway, shaped like the workload it was planned for."""
    keys = profile.gateway.api_keys
    return LoadSpec(
        url=profile.gateway.url,
        workload=profile.workload,
        model=profile.model.name,
        api_key=keys[0] if keys else "",
        slos={lane.name: lane.slo for lane in profile.lanes},
    )


def run(spec: LoadSpec, *, on_progress: Callable[[LoadProgress], None]) -> tuple[LoadReport, bool]:
    """Run a load to its end and return its report, and whether Ctrl-C or SIGTERM ended it early."""
    return asyncio.run(_run(spec, on_progress))


async def _run(spec: LoadSpec, on_progress: Callable[[LoadProgress], None]) -> tuple[LoadReport, bool]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    return await run_load(spec, on_progress=on_progress, stop=stop), stop.is_set()


class BackgroundLoad:
    """A load that runs beside something else until it is stopped."""

    def __init__(self, spec: LoadSpec) -> None:
        self._spec = spec
        self._result: LoadReport | FleetctlError | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._work, name="load", daemon=True)
        self._thread.start()

    def finish(self) -> LoadReport:
        """Stop it and return what it saw. Raises UnavailableError, or what ended it before."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_FINISH_S)
        if isinstance(self._result, FleetctlError):
            raise self._result
        if self._result is None:
            raise UnavailableError("the load generator did not end when it was asked to")
        return self._result

    def _work(self) -> None:
        try:
            run = run_load(self._spec, on_progress=lambda _: None, stop=self._stop)
            self._result = self._loop.run_until_complete(run)
        except FleetctlError as error:
            self._result = error
        finally:
            self._loop.close()


def judge(report: LoadReport, slos: dict[str, LaneSlo], *, objective: float = _OBJECTIVE) -> LoadVerdict:
    """Hold the figures against the promises: percentile by percentile, and failures against the objective."""
    verdicts = [_verdict(figures, slos[figures.lane], objective) for figures in report.lanes if figures.lane in slos]
    return LoadVerdict(report=report, lanes=tuple(verdicts))


def _verdict(figures: LaneFigures, slo: LaneSlo, objective: float) -> LaneVerdict:
    findings = tuple(_finding(target, figures) for target in slo.targets)
    broken = [_message(finding) for finding in findings if finding.kept is False]
    served = figures.requests - figures.refused
    if served and figures.failures > served * (1 - objective):
        broken.append(f"{figures.failures} of {served} requests failed")
    if broken:
        return LaneVerdict(lane=figures.lane, kept=False, findings=findings, reason="; ".join(broken))
    is_judged = any(finding.kept is not None for finding in findings)
    return LaneVerdict(lane=figures.lane, kept=True if is_judged else None, findings=findings)


def _finding(target: LatencyTarget, figures: LaneFigures) -> TargetVerdict:
    found = measured(figures, target.metric)
    if found is None or not found.count:
        return TargetVerdict(target=target, measured_s=None, samples=0, kept=None)
    seconds = found.at_s(target.percentile)
    return TargetVerdict(target=target, measured_s=seconds, samples=found.count, kept=seconds <= target.limit_s)


def measured(figures: LaneFigures, metric: Metric) -> Quantiles | None:
    """Return what a client can see of a metric; None for the queue, which it cannot."""
    match metric:
        case Metric.TTFT:
            return figures.ttft
        case Metric.ITL:
            return figures.itl
        case Metric.E2E | Metric.COMPLETION:
            return figures.e2e
        case Metric.QUEUE_WAIT:
            return None


def _message(finding: TargetVerdict) -> str:
    target = finding.target
    return f"{target.metric} P{target.percentile * 100:g} {finding.measured_s or 0:.3g}s over {target.limit_s:.3g}s"
