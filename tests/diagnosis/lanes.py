"""A lane whose requests are written down by hand, and what is diagnosed of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from fleetctl.core.diagnosis.evidence import FleetEvidence
from fleetctl.core.diagnosis.tree import diagnose
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.ladder import LadderStep
from fleetctl.model.observation import EngineSignals
from fleetctl.model.replica import ReplicaState
from fleetctl.model.request_trace import RequestAttempt, RequestTrace, RunningAnswer
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.testing import samples
from tests.sim.fleets import desired_for, three_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.diagnosis.findings import Cause, CauseFound, Diagnosis
    from fleetctl.model.desired import Desired
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.tiers import TierSpec

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


@cache
def desired() -> Desired:
    return desired_for(three_lanes())


def ended(at_s: float, replica: str = "r1", /, **how: Any) -> RequestTrace:  # any field of it, or of its attempt
    """Return a good request of `long`, accepted so many seconds ago, and where it was."""
    tokens = how.pop("prompt_tokens", 300)
    attempt = RequestAttempt(
        replica=replica, at_s=how.pop("sent_s", 0.0), prompt_tokens=tokens, prompts_ahead=how.pop("prompts_ahead", 0),
        prompt_tokens_ahead=0, requests_beside=how.pop("beside", 0), predicted_ttft_s=how.pop("predicted_s", 0.01),
        failure=how.pop("failure", ""),
    )  # fmt: skip
    trace = RequestTrace(
        seq=round((1000.0 - at_s) * 1000), id=f"q{at_s}", lane="long", client="some", at=NOW - timedelta(seconds=at_s),
        is_stream=True, prompt_tokens=tokens, cached_tokens=0, output_tokens=50, output_tokens_max=0, queue_wait_s=0.0,
        queued_behind=None, ttft_s=0.05, total_s=1.0, gaps=49, gap_s_mean=0.02, gap_s_p99=0.03, gap_s_max=0.03,
        attempts=(attempt,), ending="complete", verdict="good", ttft_limit_s=2.0, gap_limit_s=0.08,
    )  # fmt: skip
    return replace(trace, **how)


def uneven(at_s: float, replica: str = "r1", /, **how: Any) -> RequestTrace:
    """Return one whose gaps were too long."""
    return ended(at_s, replica, verdict="itl", **{"gap_s_max": 0.15, "gap_s_p99": 0.15, **how})


def refused(at_s: float, **how: Any) -> RequestTrace:
    """Return one that was turned away."""
    nothing: dict[str, Any] = {"attempts": (), "queue_wait_s": None, "ttft_s": None, "total_s": 0.0, "gap_s_mean": None}
    return ended(at_s, verdict="refused", refusal="predicted-wait", ending="refused", **nothing, **how)


def served(name: str, *, since_s: float, until_s: float | None = None, **record: Any) -> ReplicaStatus:
    """Return a replica of `long` that was ready so many seconds ago, and drains since. None: it still serves."""
    state = ReplicaState.READY if until_s is None else ReplicaState.DRAINING
    ready_at = NOW - timedelta(seconds=since_s)
    changed_at = ready_at if until_s is None else NOW - timedelta(seconds=until_s)
    found = samples.replica(name, lane="long", state=state, ready_at=ready_at, changed_at=changed_at, **record)
    return ReplicaStatus(record=found, engine=EngineSignals(), in_flight=0)


def diagnosed(
    requests: Iterable[RequestTrace],
    journal: tuple[JournalEntry, ...] = (),
    *,
    replicas: tuple[ReplicaStatus, ...] = (),
    running: tuple[RunningAnswer, ...] = (),
    tiers: tuple[TierSpec, ...] = (),
    **lane: Any,
) -> Diagnosis:
    """Return what is found of a fleet with these requests."""
    wanted = replace(desired(), profile=replace(desired().profile, tiers=tiers))
    seen = LaneStatus(
        name="long", slo=wanted.profile.lane("long").slo,
        **{"wanted": 2, "ready": 2, "spot": 0, "on_demand": 2, "live": 2, "step": LadderStep.NORMAL, **lane},
    )  # fmt: skip
    status = FleetStatus(
        fleet="demo", at=NOW, phase=DesiredPhase.UP, mode=wanted.profile.control.mode, model="m", provider="p",
        generation=1, gateway_url="", gateway_alive=True, controller_alive=True, controller_pid=1, gateway_pid=2,
        cost_usd_per_hour=0.0, max_cost_usd_per_hour=None, cost_usd_per_1m_tokens=None, lanes=(seen,), replicas=replicas,
        decisions=(),
    )  # fmt: skip
    in_order = tuple(sorted(requests, key=lambda trace: trace.at))
    return diagnose(FleetEvidence(desired=wanted, status=status, requests=in_order, running=running, journal=journal))


def named(found: Diagnosis, cause: Cause) -> CauseFound | None:
    """Return what is said of a cause; None: it is not named."""
    return next((each for each in found.causes if each.cause is cause), None)
