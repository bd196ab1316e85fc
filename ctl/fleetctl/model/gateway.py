"""What controller and gateway say to each other. Hot-path lookups are built from these, not done on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from fleetctl.model.budget import RequestTotals
from fleetctl.model.eviction import Eviction
from fleetctl.model.generation import GenerationSpec
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import ContextCap, LaneRules, RequestRules
from fleetctl.model.request_form import RequestForm
from fleetctl.model.slo import Quantiles, TargetCount, less_covered
from fleetctl.model.stream import StreamFigures
from fleetctl.model.tiers import RouteTier, TierSnapshot
from fleetctl.model.tls import ServedCertificate, TlsFiles
from fleetctl.model.traffic import ArrivalBurst
from fleetctl.model.workflow_figures import WorkflowSnapshot
from fleetctl.model.workflows import WorkflowsSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteReplica:
    """One replica in the table. Only `in_rotation` ones get new requests; the rest keep what they carry."""

    id: str
    lane: str
    host: str
    port: int
    in_rotation: bool
    concurrency_max: int  # requests the gateway lets be in flight there at once
    prefill_tokens_per_s: float  # of the plan's model; predicts TTFT
    node_ready: bool = True  # False: its node does not report, so it is picked only where no other can be
    max_model_len: int = 0  # prompt and output tokens of one request that its engine holds; 0: not known
    kv_tokens: int = 0  # of KV cache that its engine should have; 0: not known
    kv_share: float = 0.96  # of it, what may be promised to requests
    healthy: bool = True  # False: found unhealthy; what it carries goes elsewhere as soon as it is silent
    served_name: str = (
        ""  # what its engine calls the model, where others of the table call theirs otherwise; else empty
    )
    priority_sign: int = 0  # 1: its engine serves lower priorities first, -1: higher ones; 0: it does not look at them
    caches_prefixes: bool = True  # False: whatever it has seen of a prompt, it computes all of it again
    continues: bool = False  # its engine goes on from a last message of the assistant, so a lost stream can go on here
    form: RequestForm | None = None  # in which its engine wants requests; None: as they come

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; another address under the same id is another process."""
        return self.host, self.port


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLane(LaneRules):
    """One lane in the table: the profile's rules for it, and where it stands on the ladder."""

    step: LadderStep = LadderStep.NORMAL
    max_tokens_cap: int | None = None  # of an answer, on the steps that cut answers short
    context_tokens_cap: int | None = None  # of a prompt, on the steps that take no long ones
    cap_context: ContextCap = ContextCap.REFUSE
    lacks_replicas: bool = False  # some that it had are missing: its spill_to lanes may serve it meanwhile
    # A replica of its own is on its way, and takes so long from order to ready. None: none is.
    replacement_s: float | None = None
    engine: str = ""  # what its replicas are from outside, by name: only lanes of the same lend each other replicas
    model: str = ""  # that they serve, by name; of another one nothing is lent either. Empty: the fleet has one
    output_tokens: float = 0.0  # of a mean answer, as planned; 0: not known
    long_prompt_tokens: int = (
        0  # prompts from so many tokens on go to spill_to lanes' larger KV caches first; 0: none do
    )
    max_model_len: int = 0  # the most that a replica of its own holds of one request, in tokens; 0: not known
    objective: float = 0.995  # the share of its requests that are to be good


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteModel:
    """A model in the table: what clients may call it, and which stands in for it."""

    name: str  # what its lanes' engines call it, but for those that a rollout has yet to rename
    root: str  # its hub id
    aliases: tuple[
        str, ...
    ] = ()  # what else clients may call it, its earlier names while a rollout changes them included
    adapters: dict[str, str] = field(
        default_factory=dict
    )  # LoRA adapters that its engines serve: by name, where they lie
    fallback: str = ""  # the model that serves its requests where its lanes cannot; empty: none does
    # Of a model whose engines do not all check requests: the gateway does, and what of a request some lane cannot serve
    # is refused in all, here with the reason. None: the engines' own answers are alike.
    refused: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingTable(RequestRules):
    """Everything the gateway needs; replaced whole, applied between two requests. `version` only grows.

    `epoch` is the lease of the controller that made it: one of an older epoch is not taken, whatever its version.
    """

    fleet: str
    version: int
    model: str  # the served name
    lanes: tuple[RouteLane, ...]
    replicas: tuple[RouteReplica, ...]
    served_names: tuple[str, ...] = ()  # all that clients may ask for, while a rollout changes the name; else empty
    epoch: int = 0
    generation: int = 0  # of the fleet's record it was made from
    api_key_hashes: tuple[str, ...] = ()  # scrypt or sha256, see gateway/auth; empty: open (loopback only)
    key_generation: dict[str, GenerationSpec] = field(default_factory=dict)  # by hash: bounds beside the lane's
    workflows: WorkflowsSpec | None = None  # None: each request is by itself
    key_names: dict[str, str] = field(default_factory=dict)  # by hash, where they have names
    key_tiers: dict[str, str] = field(default_factory=dict)  # by hash, where they have tiers
    tiers: tuple[RouteTier, ...] = ()  # highest first; empty: all requests are alike
    models: tuple[RouteModel, ...] = ()  # the first serves requests that name none; empty: of an earlier version
    tls: TlsFiles | None = None  # None: clients are served in clear

    @property
    def order(self) -> tuple[int, int]:
        """What tells the newer of two tables."""
        return self.epoch, self.version


class ReplicaSignals(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine said of itself, `age_s` before this was sent; only figures that may be decided on are sent."""

    id: str
    age_s: float
    running: int
    waiting: int
    kv_usage: float | None  # 0-1; None: it never says
    preemptions: float = 0.0  # counter
    kv_tokens: float = 0.0  # that its KV cache holds; 0: it does not say
    prompt_tokens: float = 0.0  # counter; it goes back where the engine was started anew


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalFeed:
    """Engine figures for routing; a replica that is not named keeps what it has until that is too old.

    They change every few seconds and mean nothing after a restart, so they come beside the routing table, not in it.
    """

    replicas: tuple[ReplicaSignals, ...]


class LaneWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's figures over the last `seconds`."""

    seconds: float
    offered: int = 0  # requests that arrived
    good: int = 0  # finished inside the SLO
    breached: dict[str, int] = {}  # by BreachKind, refusals among them, covered ones too
    covered: int = 0  # of the refusals: good, as the lane's shed allowance covers them
    shed_share: float = 0.0  # that allowance: the share of its requests that may be refused
    shed: dict[str, int] = {}  # the refusals by reason
    finished: int = 0
    looped: int = 0  # answers that were found to repeat themselves, whatever became of them
    preempted: int = 0  # streams of its replicas that lost their place in an engine
    prefixes_lost: int = 0  # turns of conversations whose cached prefix others had taken the memory of
    prefix_tokens_lost: int = 0  # cached tokens of these
    prompt_tokens: int = 0
    output_tokens: int = 0  # as they came, those of requests that still run among them
    finished_output_tokens: int = 0  # of requests that finished, as `prompt_tokens` are
    ttft: Quantiles = Quantiles()
    itl: Quantiles = Quantiles()
    e2e: Quantiles = Quantiles()
    queue_wait: Quantiles = Quantiles()
    targets: tuple[TargetCount, ...] = ()  # in the SLO's order
    streams: StreamFigures = StreamFigures()

    @property
    def evicted(self) -> int:
        """What its replicas' KV caches lost for want of room."""
        return self.preempted + self.prefixes_lost

    @property
    def missed(self) -> int:
        """Requests outside the SLO, refused or failed; core/slo/endings has the table."""
        return sum(self.breached.values()) - self.covered

    @property
    def missed_by_kind(self) -> dict[str, int]:
        """Those by BreachKind."""
        return less_covered(self.breached, self.covered)

    @property
    def attained(self) -> int:
        """Good requests as the objective counts them: inside the SLO, or refused and covered by the shed allowance."""
        return self.good + self.covered

    @property
    def judged(self) -> int:
        """Requests that count against the objective: those offered that ended well, were refused or have missed."""
        return self.good + sum(self.breached.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTotals:
    """The tokens of a lane's requests that are over, since its gateway started."""

    prompt: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSnapshot:
    """A lane now."""

    name: str
    in_flight: int
    queued: int
    oldest_wait_s: float
    windows: tuple[LaneWindow, ...]  # 10 s, 1 m, 5 m, 1 h, shortest first
    ejected: int = 0  # replicas of its own that are in rotation and left alone, as they fail
    serves: bool = True  # some replica is sent its requests; all that are ejected are not hung or gone
    totals: RequestTotals | None = None  # since the gateway started; None: it is of a version that counts none
    tokens: TokenTotals | None = None  # None: it is of a version that sums none
    tiers: tuple[TierSnapshot, ...] = ()  # highest first; empty: all requests are alike
    # Of its requests, by the replica that answered them, over the last half to one minute.
    replica_streams: dict[str, StreamFigures] = field(default_factory=dict)
    arrivals: ArrivalBurst | None = None  # of the last five minutes; None: it is of a version that counts none

    def window(self, seconds: float) -> LaneWindow:
        """Return the window of this length, or an empty one."""
        for window in self.windows:
            if window.seconds == seconds:
                return window
        return LaneWindow(seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowness:
    """How much slower than its peers a replica streams, which is left alone for it."""

    tpot_s: float  # the time per output token, when it was last ejected
    peers_tpot_s: float  # the median of its peers
    for_s: float  # since it was found so first; it has not been well for long since
    ejections: int  # since then
    is_confirmed: bool = False  # the requests it was probed with were slow as well

    @property
    def slow_by(self) -> float:
        """Return how many times as long as its peers it takes."""
        return self.tpot_s / self.peers_tpot_s


class ReplicaSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A replica as the gateway sees it."""

    id: str
    in_flight: int
    failures: int  # connects refused, early closes, 5xx
    consecutive_failures: int
    errors_in_a_row: int = 0  # answered with nothing else since; they may be the clients' own doing
    is_stalled: bool = False  # all that it carried stood still for too long, and it has answered nobody since
    silent_s: float = 0.0  # it has requests, and nothing was heard of any for this long
    unheard_s: float | None = None  # since it last said anything of any request; None: it never has
    prefill_allowance_s: float = 0.0  # how much longer it may be silent over the prompts it works on
    streams_max: int = 0  # that it may have at once, as learned from the gaps between their tokens; 0: it does not say
    slowness: Slowness | None = None  # None: it is not left alone for being slow
    good: int = 0  # requests that ended here inside their SLO
    breached: dict[str, int] = {}  # those outside of it, by BreachKind


class ReplicaCuts(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that a replica had and that nothing came of any more, as where its node is gone; counted as they end."""

    id: str
    cut: int
    lost: int  # of these, those that nobody answered in full: neither sent elsewhere with success nor ended by their client


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoopLoad:
    """How busy the gateway's one event loop was over the last ten seconds."""

    cpu_share: float  # of one processor, 0-1
    lag_s: float  # by how much its own timers were late; nine in ten by no more than that


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySnapshot:
    """The gateway now."""

    fleet: str
    at: datetime
    started_at: datetime
    table_version: int
    pid: int
    lanes: tuple[LaneSnapshot, ...]
    replicas: tuple[ReplicaSnapshot, ...]
    uptime_s: float | None = None  # on a clock that nobody sets; None: it does not say
    table_generation: int = 0  # of the fleet's record that its table was made from; 0: it has none
    loop: EventLoopLoad | None = None  # None: not known yet
    workflows: WorkflowSnapshot | None = None  # None: its profile has none
    cuts: tuple[ReplicaCuts, ...] | None = None  # since its start, gone replicas too; None: it counts none
    evictions: tuple[Eviction, ...] = ()  # the newest, the last one last
    evictions_seq: int = 0  # of the last there was
    is_beside: bool = False  # it has a part of the limits, or waits for one, as others have theirs
    certificate: ServedCertificate | None = None  # None: clients are served in clear

    def age_s(self, now: datetime) -> float:
        """Return how long the gateway has run: its windows hold no more than that."""
        return (now - self.started_at).total_seconds() if self.uptime_s is None else self.uptime_s
