"""What the faces show: one value with everything, made by the controller, streamed and printed alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fleetctl.model.alert import Alert
from fleetctl.model.boot import BootStep
from fleetctl.model.budget import ErrorBudget
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.engine_fault import EngineFault
from fleetctl.model.gateway import EventLoopLoad, LaneSnapshot
from fleetctl.model.gateway_process import GatewayStatus
from fleetctl.model.head import HeadStatus
from fleetctl.model.journal import JournalEntry
from fleetctl.model.ladder import LadderStep
from fleetctl.model.node import BootProgress
from fleetctl.model.observation import EngineSignals, StoreCondition
from fleetctl.model.pinned_image import PinnedImage
from fleetctl.model.profile import Mode
from fleetctl.model.reason import Reason, join_messages
from fleetctl.model.replica import Replica
from fleetctl.model.rollout import RolloutStatus
from fleetctl.model.slo import LaneSlo, Validity
from fleetctl.model.tls import ServedCertificate
from fleetctl.model.traffic import ArrivalBurst
from fleetctl.model.verdict import SloVerdict
from fleetctl.model.workflow_figures import WorkflowSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    """A lane: promised, wanted, had, measured."""

    name: str
    slo: LaneSlo
    wanted: int
    ready: int
    spot: int
    on_demand: int
    live: int  # every replica that holds a node
    step: LadderStep
    model: str = ""  # that it serves, by the name clients use; empty: of an earlier version
    # "5m", "30m", "1h", "6h", "3d" -> burn rate; a missing key: no request in it
    burn: dict[str, float] = field(default_factory=dict)
    burn_alert: bool = False  # it has burned fast enough for long enough to page somebody: fast-burn fires
    alerts: tuple[Alert, ...] = ()  # firing or pending, the most urgent first
    traffic: LaneSnapshot | None = None  # None: the gateway is silent
    validity: Validity = Validity.NONE
    reasons: tuple[Reason, ...] = ()  # the last decision's on this lane
    pending: int = 0  # replicas on their way to ready; of one that is to recover nobody knows
    lost_since: datetime | None = None  # since when it has had fewer ready replicas than it had; None: it has not
    pressure: float | None = None  # in [0, 1]; None: no signal fit to decide on
    verdict: SloVerdict = field(default_factory=SloVerdict)  # NONE without current figures
    engine_fault: EngineFault | None = None  # of the last failed start, until a replica becomes ready
    failed_starts: int = 0  # in a row, until a replica becomes ready
    cannot_start: bool = False  # it fails the same way however often it is tried
    budget: ErrorBudget | None = None  # over the objective's window; None: nothing counted yet
    # How bursty its arrivals of the last five minutes were, beside the plan's; None: the gateway is silent, or counts none.
    arrivals: ArrivalBurst | None = None
    image: PinnedImage | None = None  # that its next replica starts, by its digest; None: by a name, or it starts none
    machine_image: PinnedImage | None = None  # of its next machine, by its id; None: as its provider finds it

    @property
    def reason(self) -> str:
        """The reasons in words."""
        return join_messages(self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """A replica: its record and its signals."""

    record: Replica
    engine: EngineSignals
    in_flight: int
    is_outdated: bool = False  # it runs with other launch settings than its lane's next one would
    pending_reason: str = ""  # why its node does not run yet, in the provider's words
    boot: BootProgress | None = None  # None: it has started, or nothing is said
    boot_steps: tuple[BootStep, ...] = ()  # that its start has come to, or came to once it was ready
    boot_concern: str = ""  # which phase takes longer than usual, and what to look at


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """A whole fleet at one instant."""

    fleet: str
    at: datetime
    phase: DesiredPhase
    mode: Mode
    model: str
    provider: str
    generation: int  # that the controller works by
    gateway_url: str
    gateway_alive: bool
    controller_alive: bool
    controller_pid: int
    gateway_pid: int
    cost_usd_per_hour: float  # of live replicas and the head
    max_cost_usd_per_hour: float | None
    cost_usd_per_1m_tokens: float | None  # over the last 5 minutes; None without traffic
    lanes: tuple[LaneStatus, ...]
    replicas: tuple[ReplicaStatus, ...]
    decisions: tuple[JournalEntry, ...]  # newest last, at most 50
    max_nodes: int | None = None  # None: not known
    shared_left: int = 0  # shared resources that are prepared at the provider, or may be
    gateway_generation: int = 0  # that the gateway works by; 0: it does not say
    controller_seen_at: datetime | None = None  # when a controller was last at work; None: now, or never
    controller_place: str = (
        ""  # what it is called where its host keeps it: "pod demo-controller-x"; empty: its pid tells it
    )
    controller_host: str = ""  # the machine of one that runs elsewhere, by a state that both see
    controller_trouble: str = (
        ""  # what keeps one from answering, and what to do, where it is not a process of this machine
    )
    controller_stall: str = ""  # why its process does not progress, and for how long: "stopped", "hung"
    controller_failing_since: datetime | None = None  # it answers, and several ticks in a row have failed; see `reason`
    gateway_stall: str = ""
    gateway_loop: EventLoopLoad | None = None  # None: not known; of several the busiest
    gateways: tuple[GatewayStatus, ...] = ()  # each by itself, where there are several; empty: one alone
    certificate: ServedCertificate | None = None  # that clients are served by; None: in clear, or it is not known
    store_condition: StoreCondition | None = None  # what keeps the controller from writing the state down
    workflows: WorkflowSnapshot | None = None  # None: its profile has none, or the gateway is silent
    overrides: Overrides = field(default_factory=Overrides)  # what people have set, frozen or cordoned
    rollout: RolloutStatus | None = None  # the newest; None: none between two revisions
    revision: int | None = None  # that its lanes have, or are brought to, the first included; None: no rollout is known
    is_revision_complete: bool = True  # every lane has what it asks for, and of no other
    reason: str = ""  # what stands in the whole fleet's way: a cap, a silent provider, a failed tick; empty: nothing
    head: HeadStatus | None = None  # the machine of its own that controller and gateway have; None: they have none
    plan_risks: tuple[str, ...] = ()  # promises that its plan's forecasts may miss, accepted with --accept-risk

    @property
    def is_unattended(self) -> bool:
        """Whether no controller runs, as opposed to one that does not answer."""
        return not self.controller_alive and not self.controller_pid
