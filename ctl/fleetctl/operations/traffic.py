"""Sends load at a fleet or an address, and says what its client's verdict comes to."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.slo.wording import explain
from fleetctl.errors import ConfigError, FleetctlError, NotFoundError, SloBreachError, UnavailableError
from fleetctl.load.calls import PlayedWorkflows
from fleetctl.load.report import LaneFigures, LoadProgress, LoadReport, LoadSpec
from fleetctl.load.runner import run_load
from fleetctl.model.slo import LaneSlo, Metric, Quantiles
from fleetctl.model.verdict import Compliance
from fleetctl.operations.gateway_tls import trusted_certificate
from fleetctl.operations.kept_promises import compliance_of_parts, missed_promises, undecided_promises
from fleetctl.operations.lookup import chosen_fleet, known_fleet
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.model.verdict import PromiseFinding
    from fleetctl.operations.site import Site

__all__ = [
    "BackgroundLoad", "LaneFigures", "LoadProgress", "LoadReport", "LoadSpec", "LoadVerdict", "PlayedWorkflows", "address_spec",
    "check_answered", "check_lane", "check_slo", "client_keys", "failures", "fleet_spec", "measured", "run", "target_fleet",
]  # fmt: skip
_FINISH_S = 30.0  # the worker lets in-flight requests finish for some seconds of these


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadVerdict:
    """A load run and its verdict."""

    report: LoadReport

    @property
    def compliance(self) -> Compliance:
        """The gravest of the lanes', of the total's, and of what tiers and kinds of workflows are promised of their own."""
        found = {figures.verdict.compliance for figures in (*self.report.lanes, self.report.total)}
        found.add(compliance_of_parts(self._parts))
        return next((each for each in Compliance if each in found), Compliance.NONE)

    @property
    def missed(self) -> tuple[str, ...]:
        """Which lanes missed their SLO and how, in words; the total, where no lane did by itself; then which other promises."""
        return (*self._lanes_missed, *self.promises_missed)

    @property
    def promises_missed(self) -> tuple[str, ...]:
        """Which promises of tiers and of kinds of workflows were missed, in words."""
        return missed_promises(self._parts)

    @property
    def _parts(self) -> list[tuple[str, Sequence[PromiseFinding]]]:
        report = self.report
        return [
            *((f"tier {each.name}", each.promises) for each in report.tiers if each.promises),
            *((f"workflows {each.kind}", each.promises) for each in report.workflows if each.promises),
        ]

    @property
    def _lanes_missed(self) -> tuple[str, ...]:
        lanes = [figures for figures in self.report.lanes if figures.verdict.compliance is Compliance.MISSED]
        total = self.report.total
        if not lanes and total.verdict.compliance is Compliance.MISSED:
            return (f"all lanes together missed the objective: {explain(total.verdict)}",)
        return tuple(f"lane {figures.lane} missed its SLO: {explain(figures.verdict)}" for figures in lanes)

    @property
    def cut_short(self) -> tuple[str, ...]:
        """Which lanes' SLO is undecided as too many requests were cut short, in words; the total's, where no lane's is.

        Then which other promises.
        """
        lanes = [each for each in self.report.lanes if _is_cut_short(each)]
        unknown = undecided_promises(self._parts)
        if not lanes and _is_cut_short(self.report.total):
            return (f"all lanes together: {explain(self.report.total.verdict)}", *unknown)
        return (*(f"lane {each.lane}: {explain(each.verdict)}" for each in lanes), *unknown)


def _is_cut_short(figures: LaneFigures) -> bool:
    return any(finding.is_cut_short for finding in figures.verdict.findings)


def check_slo(report: LoadReport) -> None:
    """Raise SloBreachError if a lane or all together missed the SLO, or a tier or a kind of workflows a promise of its own.

    Raises UnavailableError if too few were answered to know.

    Raises what `check_answered` does, too.
    """
    verdict = LoadVerdict(report=report)
    if verdict.compliance is Compliance.MISSED:
        raise SloBreachError("; ".join(verdict.missed))
    check_answered(report)
    if verdict.cut_short:
        message = f"whether the SLO was kept is undecided: {'; '.join(verdict.cut_short)}"
        raise UnavailableError(
            message, hint="`fleetctl status` says whether the fleet is well; --drain-timeout waits longer"
        )


def check_answered(report: LoadReport) -> None:
    """Raise ConfigError if every request was the client's own fault, UnavailableError if none was answered in full."""
    total, sent = report.total, report.total.requests
    if total.ok or not sent:
        return
    cut_short = [f"{total.cut_short} still waited when the run ended"] if total.cut_short else []
    message = f"none of {sent} requests was answered: {'; '.join([*failures(total), *cut_short])}"
    if total.rejected == sent:
        raise ConfigError(message, hint="look at --model, --lane, --api-key and the prompts' length")
    raise UnavailableError(message, hint="is the fleet well? `fleetctl status` says so")


def failures(figures: LaneFigures) -> Iterator[str]:
    """Yield how requests were not answered in full, and what was said about it: "429 queue-full (12)"."""
    counts = {"http-429": figures.refused, "http-503": figures.unavailable, **figures.failed}
    for kind, count in counts.items():
        if count:
            named = [f"{why} {n}" for why, n in figures.refusals.items() if kind == f"http-{Refusal(why).status}"]
            message = ", ".join(named) or figures.messages.get(kind, "")
            yield f"{count} x {kind}" + (f" ({message})" if message else "")


def check_lane(profile: Profile, lane: str) -> None:
    """Raise NotFoundError if the fleet has no lane of this name."""
    names = [spec.name for spec in profile.lanes]
    if lane and lane not in names:
        hint = f"it has {', '.join(names)}{suggest(lane, names)}"
        raise NotFoundError(f"fleet {profile.name!r} has no lane {lane!r}", hint=hint)


def client_keys(written: Iterable[str]) -> dict[str, str]:
    """Return clients' keys by CLIENT=REF. Raises ConfigError for what is not written so, or twice."""
    found: dict[str, str] = {}
    for each in written:
        client, _, reference = each.partition("=")
        if not client or not reference.startswith(("env:", "file:")):
            raise ConfigError(
                "--key is not written as CLIENT=REF", hint="write --key shop=env:SHOP_KEY or --key shop=file:PATH"
            )
        if client in found:
            raise ConfigError(f"--key {client} is given twice")
        found[client] = reference
    return found


def target_fleet(site: Site, target: str) -> Desired | None:
    """Return the fleet called `target` (the only one, if empty), or None for an address."""
    if "://" in target:
        return None
    return known_fleet(site, chosen_fleet(site, target))


def address_spec(url: str) -> LoadSpec:
    """Return a load at an address, shaped like the published conversation trace."""
    return LoadSpec(url=url.removesuffix("/").removesuffix("/v1"))


def fleet_spec(profile: Profile, plan: Plan | None = None) -> LoadSpec:
    """Return a load at a fleet's gateway, shaped like the workload it was planned for, with its keys that have a name.

    With its plan the report has the burst that each lane was planned for beside the one it was sent.
    """
    bursts = {lane.lane: lane.arrivals for lane in plan.lanes} if plan is not None else {}
    keys, names = profile.gateway.api_keys, profile.gateway.key_names
    # Requests of no client that is known are not any named one's; where every key has a name, some of them have to be.
    anybodys = next((reference for reference in keys if reference not in names), keys[0] if keys else "")
    return LoadSpec(
        url=profile.gateway.url,
        certificate=trusted_certificate(profile),
        workload=profile.workload,
        models=profile.models,
        lane_models=profile.lane_models,
        api_key=anybodys,
        keys={name: reference for reference, name in names.items()},
        tiers=profile.tiers,
        key_tiers=profile.gateway.key_tiers,
        slos={lane.name: _seen(lane) for lane in profile.lanes},
        kinds=profile.workflows.kinds if profile.workflows is not None else (),
        planned={lane: burst for lane, burst in bursts.items() if burst is not None},
        objective=profile.objective.fraction,
    )


def _seen(lane: LaneSpec) -> LaneSlo:
    """Return what a client can hold a lane to: where the gateway coalesces, tokens no longer come as engines make them."""
    if lane.coalesce is None:
        return lane.slo
    return replace(lane.slo, targets=tuple(target for target in lane.slo.targets if target.metric is not Metric.ITL))


def run(spec: LoadSpec, *, on_progress: Callable[[LoadProgress], None]) -> tuple[LoadReport, bool]:
    """Run a load to its end and return its report, and whether Ctrl-C or SIGTERM ended it early."""
    return os_signals.run_until_stopped(lambda stop: run_load(spec, on_progress=on_progress, stop=stop))


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


def measured(figures: LaneFigures, metric: Metric) -> Quantiles | None:
    """Return what a client can see of a metric; None for the queue, which it cannot, and for what has none."""
    match metric:
        case Metric.TTFT:
            return figures.ttft
        case Metric.ITL:
            return figures.itl
        case Metric.E2E | Metric.COMPLETION:
            return figures.e2e
        case Metric.STREAM_GAP:
            return figures.streams.gap
        case Metric.QUEUE_WAIT | Metric.STALL_RATE | Metric.TOKENS_PER_CHUNK:
            return None
