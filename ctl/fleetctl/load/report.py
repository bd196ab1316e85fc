"""What a load run is asked for, and what it answers; plain values that cross the process boundary as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.load.calls import PlayedWorkflows
from fleetctl.model.profile import Distribution, ModelSpec, WorkloadSpec
from fleetctl.model.slo import LaneSlo, Quantiles
from fleetctl.model.stream import StreamFigures
from fleetctl.model.tiers import TierSpec
from fleetctl.model.traffic import ArrivalBurst, Dispersion, TrafficFigures
from fleetctl.model.verdict import SloVerdict
from fleetctl.model.workflows import WorkflowKind

# The public Azure LLM conversation trace of 2023 (Splitwise, ISCA 2024): 19,366 requests in 58 minutes.
CONVERSATION = WorkloadSpec(
    peak_rps=5.6,
    prompt_tokens=Distribution(p50=1020, p99=4142),
    output_tokens=Distribution(p50=129, p99=601),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """One load run against one gateway or engine."""

    url: str  # http://host:port or https://, without /v1
    certificate: str = ""  # PEM: the one that is taken of the server; empty: as the system's authorities say
    trace: str = ""  # a CSV(.gz); empty: requests are generated from `workload`
    workload: WorkloadSpec = CONVERSATION
    duration_s: float | None = None  # of arrivals; None: the whole trace, or 60 s of generated load
    offset_s: float = 0.0  # of the trace that is skipped
    speed: float = 1.0  # 2.0: arrivals come twice as fast
    rps: float | None = None  # a trace faster than this is thinned to it; generated load has this rate
    batch_share: float | None = None  # of requests sent with the batch hint; None: as the workload says
    model: str = ""  # of every request; empty: as the trace says, else by `models`, else the first of /v1/models
    models: tuple[ModelSpec, ...] = ()  # the profile's: a trace may name no others; none: it may name any
    lane_models: dict[str, str] = field(default_factory=dict)  # by lane, where the fleet has several
    api_key: str = ""  # a reference, env:NAME or file:PATH
    keys: dict[str, str] = field(default_factory=dict)  # by the client of a trace's rows: its own, as a reference
    tier: str = ""  # sent as x-fleetctl-tier; empty: the trace's tier column, or none
    lane: str = ""  # sent as x-fleetctl-lane; empty: the trace's lane column, or none
    tiers: tuple[TierSpec, ...] = ()  # the profile's, in order: a trace may name no others; none: it may name any
    key_tiers: dict[str, str] = field(
        default_factory=dict
    )  # by reference, as `keys` has them: their tiers, where they have
    slos: dict[str, LaneSlo] = field(default_factory=dict)  # by lane; with none, nothing is judged
    kinds: tuple[
        WorkflowKind, ...
    ] = ()  # of the profile's workflows: a trace may name no others; none: it may name any
    planned: dict[str, Dispersion] = field(default_factory=dict)  # by lane: how bursty its plan has arrivals
    objective: float = 0.995  # the share of good requests promised; the published example's
    bytes_per_token: float = 4.0  # of the made-up prompts; about what English is under byte-pair tokenizers
    seed: int = 0  # of arrivals, lengths and the order of prompts
    repeats_prompts: bool = (
        False  # sends the texts of every run with this seed: engines may have them cached from an earlier one
    )
    timeout_s: float = 600.0  # a request's, in all
    in_flight_max: int = 4096  # arrivals beyond it are not sent, and counted
    interval_s: float = 2.0  # between two progress lines
    drain_timeout_s: float = 60.0  # after the last arrival, in-flight requests get this long
    drain_s: float = 5.0  # after an early end they get this long


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFigures:
    """One lane's figures as the client measured them. Requests that no lane was named for are under "-".

    Each request that was sent counts once: `requests` is the sum of `ok`, `refused`, `unavailable`, `failed`, `cut_short`.
    """

    lane: str
    requests: int = 0  # sent; in a progress line those that ended
    ok: int = 0  # answered in full
    good: int = 0  # answered in full inside the SLO; without one, `ok`
    refused: int = 0  # 429
    refused_with_retry_after: int = 0
    unavailable: int = 0  # 503
    rejected: int = 0  # any other 4xx, also under `failed`: the client's own fault, which no lane answers for
    failed: dict[str, int] = field(default_factory=dict)  # by FailureKind, or http-<status>
    refusals: dict[str, int] = field(default_factory=dict)  # by the gateway's x-fleetctl-reason
    cut_short: int = 0  # still in flight when the run ended: a miss if a limit had passed, else `verdict.undecided`
    messages: dict[str, str] = field(default_factory=dict)  # the first answer of each kind that was none in full
    breached: dict[str, int] = field(default_factory=dict)  # by BreachKind, of those with an SLO
    attainment: float | None = None  # good of offered, as core/slo/endings counts; None: no SLO, or nothing to judge
    goodput_rps: float = 0.0  # over the same time as output_tokens_per_s
    prompt_tokens: int = 0
    output_tokens: int = 0
    output_tokens_per_s: float = 0.0
    ttft: Quantiles = field(default_factory=Quantiles)
    itl: Quantiles = field(default_factory=Quantiles)
    e2e: Quantiles = field(default_factory=Quantiles)
    streams: StreamFigures = field(default_factory=StreamFigures)
    arrivals: ArrivalBurst | None = (
        None  # offered requests when they were due, tries after a refusal left out; null in a progress line
    )
    verdict: SloVerdict = field(default_factory=SloVerdict)  # of the whole run; in a progress line as of now

    @property
    def failures(self) -> int:
        """Return the requests that were neither answered in full nor refused with 429."""
        return self.unavailable + sum(self.failed.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorFigures:
    """Whether the generator itself kept up; if not, the other figures are about it."""

    offered: int = 0  # arrivals that fell due
    sent: int = 0
    overflow: int = 0  # not sent, because in_flight_max was reached
    lateness: Quantiles = field(default_factory=Quantiles)  # due -> handed to the HTTP client
    cpu_s: float = 0.0  # of the worker process
    in_flight_peak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """One interim line: the last interval by lane, and where the run is."""

    elapsed_s: float
    duration_s: float | None  # None: until the trace ends
    in_flight: int
    lanes: tuple[LaneFigures, ...]  # of the last interval: counts and TTFT
    generator: GeneratorFigures  # since the start
    drain_left_s: float | None = None  # all have been sent, and answers are waited for this much longer at most


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The whole run."""

    url: str
    model: str
    source: str  # the trace's path, or "generated"
    duration_s: float  # of arrivals
    elapsed_s: float  # until the last answer: what rates are per
    ended_early: bool
    drain_timed_out: bool
    unfinished: int  # still in flight when the run was cut
    lanes: tuple[LaneFigures, ...]
    total: LaneFigures
    generator: GeneratorFigures
    tiers: tuple[TrafficFigures, ...] = ()  # of all lanes, in the profile's order; none where no request named one
    clients: tuple[TrafficFigures, ...] = ()  # those that offered the most, then the rest together; the same
    workflows: tuple[PlayedWorkflows, ...] = ()  # by kind, where the trace has any


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFault:
    """Why a run could not start, for the process that asked for it."""

    message: str
    hint: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLine:
    """One line of the worker's output; exactly one field is set."""

    progress: LoadProgress | None = None
    report: LoadReport | None = None
    fault: LoadFault | None = None
