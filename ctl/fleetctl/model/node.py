"""A node: what is ordered from a provider, what it says of what it gave, and how it works."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleetctl.errors import FleetctlError
from fleetctl.model.boot import BootStep
from fleetctl.model.catalogue import Market, OfferingKey
from fleetctl.model.cpu_share import CpuShare
from fleetctl.model.crash_loop import CrashLoop
from fleetctl.model.remote_weights import RemoteWeights

# In the commands of a replica over several machines, written as Kubernetes expands variables in a container's command:
# only the provider learns what they stand for.
LEADER_HOST = "$(LEADER_HOST)"
NODE_RANK = "$(NODE_RANK)"
# On a busy machine a listing is asked for, and taken in, this much later than it could be.
_LISTING_LATE_S = 5.0


class NodeState(StrEnum):
    """A node's state as the provider reports it."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    GONE = "gone"  # terminal: this id never runs again


class NoticeKind(StrEnum):
    """Why a node may be about to leave."""

    INTERRUPTION = "interruption"  # the provider takes a spot node back
    PREEMPTION = "preemption"  # its scheduler gives the node's place to an order of higher priority
    REBALANCE = "rebalance"  # an interruption has become likely
    MAINTENANCE = "maintenance"  # the machine is to be restarted or retired
    NOT_READY = "not-ready"  # the machine does not report; it may come back


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A provider's warning about a node."""

    kind: NoticeKind
    deadline: datetime | None  # when the node is taken; None: not said
    is_certain: bool  # False: it may yet stay
    taker: str = ""  # who gets its place, where it is preempted; empty: not said
    taken_by: str = ""  # who takes it, where that is known: the cluster's eviction API; empty: not said

    @property
    def takes_node(self) -> bool:
        """Whether the node leaves for certain: at the deadline, or at once where an interruption does not say when."""
        return self.is_certain and (self.deadline is not None or self.kind is NoticeKind.INTERRUPTION)

    @property
    def is_preemption(self) -> bool:
        """Whether the node's place goes to another order for certain."""
        return self.is_certain and self.kind is NoticeKind.PREEMPTION


@dataclass(frozen=True, slots=True, kw_only=True)
class BootProgress:
    """How far a node has come that STARTS, or whose engine does."""

    phase: str  # the provider's own word, or one of `model.boot`: "provisioning", "image", "weights"
    fraction: float | None = None  # 0-1 of this phase; None: not known
    done_bytes: int = 0  # of a download; 0: it is none
    total_bytes: int = 0  # 0: not known
    bytes_per_s: float = 0.0  # lately; 0: not known
    fault: str = ""  # why this phase has failed, in the node's words; it is tried again. Empty: it has not
    steps: tuple[BootStep, ...] = ()  # the phases up to this one, as the node tells them; empty: it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """What a container or a unit sees of the machine, or of a volume."""

    source: str
    target: str
    read_only: bool

    @classmethod
    def parse(cls, text: str) -> Mount:
        """Return the mount of a profile's `SOURCE:TARGET:ro` or `:rw`."""
        source, target, mode = text.split(":")
        return cls(source=source, target=target, read_only=mode == "ro")

    @property
    def is_path(self) -> bool:
        """Whether its source is a path; else it is the name of a volume, which only containers have."""
        return "/" in self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLaunch:
    """How an engine is started from its publisher's image, where a provider runs containers."""

    image: str
    entrypoint: tuple[str, ...]  # empty: the image's own
    args: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    member_args: tuple[str, ...] = ()  # in place of `args` on every machine but the leader; empty: there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """An order for a place that runs one replica: a whole node, a share of one, or a group of several.

    Values only: `env` holds secrets as references (env:NAME, file:PATH), which the provider resolves at the start.
    """

    token: str  # the intent's id: the same token never yields two nodes
    owner: str  # the store's uuid: tells our nodes from a stranger's
    fleet: str
    replica_id: str
    lane: str
    offering: str  # Offering.key of the first choice
    market: Market
    notice_s: float
    argv: tuple[str, ...]  # empty until the engine's address is known; such an order was never sent
    member_argv: tuple[str, ...] = ()  # of every machine but the leader; empty: the replica spans only one
    env: dict[str, str]
    host: str  # where the engine is to listen
    port: int
    tags: dict[str, str]  # lane, model, quantization, gpu_type
    alternatives: tuple[str, ...] = ()  # further Offering.keys in order of preference; the provider may take any
    gpu_count: int = 0  # GPUs pinned to this replica on each of its machines; 0: it needs none
    gpu_memory_fraction: float = 0.0  # of each of them, that the engine takes; 0: not known
    cpu: CpuShare | None = None  # of a machine without GPUs; None: whatever it takes
    node_count: int = 1  # machines the replica spans
    # Where replicas share machines: the GPUs of its machine that it is to have, and the machine, which others are on;
    # without one a machine is launched for it.
    gpu_indices: tuple[int, ...] = ()
    machine_id: str = ""
    container: ContainerLaunch | None = None  # the same engine out of an image; None: its package names none
    image: str = ""  # pinned, in place of the provider's own where `container` is None; empty: the provider's own
    machine_image: str = ""  # pinned, by its id; empty: as the provider finds it
    weights: RemoteWeights | None = None  # that the node fetches before its engine starts; None: none
    health_path: str = ""  # of HTTP, answers 200 once its engine serves; empty: not known
    start_timeout_s: float = 0.0  # after which the controller gives up a start; 0: not known
    engine_drain_s: float = 0.0  # the longest its engine goes on after SIGTERM for requests in flight; 0: not known
    lane_rank: int = 0  # its lane's place in the profile; those before it are waited on more
    is_interruptible: bool = False  # its lane yields to every other

    def command(self, rank: int, *, leader_host: str) -> tuple[str, ...]:
        """Return the command of one of the replica's machines once its leader's address is known; rank 0 is the leader."""
        names = {LEADER_HOST: leader_host, NODE_RANK: str(rank)}
        return tuple(_filled(word, names) for word in (self.member_argv if rank else self.argv))


def _filled(word: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(name, value)
    return word


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcess:
    """One of the processes a node's engine consists of. Two with one `id` are the same process."""

    id: str
    name: str  # as it calls itself; the kernel keeps 15 characters of that
    is_leader: bool = False  # the one the node was started with, whose end is the node's
    exit_reason: str = ""  # "exit 1", "signal 9", once it has ended and nobody has waited for it; empty while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A replica's place as the provider lists it.

    Replicas that share a machine have a node each, with the same `machine_id` and disjoint `gpu_indices`. A replica over
    several machines has one node under its leader's address, and `members` name the rest: they are stopped with it, and
    it ends with the first of them. What happens to a machine is said of every node on it.
    """

    id: str
    token: str
    owner: str
    fleet: str
    replica_id: str
    state: NodeState
    market: Market
    host: str  # where the engine is reached; empty until known
    port: int
    created_at: datetime
    exit_reason: str = ""  # "exit 1", "signal 9", "interrupted"; empty while alive
    # Who ended it, where the provider says that its engine did not: the cluster's eviction API; empty: not said.
    taken_by: str = ""
    log_tail: str = ""  # the end of what it wrote before it ended, where the provider keeps it; bounded
    notice: Notice | None = None
    offering: str = ""  # Offering.key of what was given; empty: what was ordered
    price_usd_per_hour: float | None = None  # what is really billed for it; None: the offering's
    machine_id: str = ""  # shared by the nodes on one machine; empty: a machine of its own
    gpu_indices: tuple[int, ...] = ()  # GPUs of the machine pinned to this replica
    machine_part: float = 1.0  # of its machine's price that falls to it: all nodes on a machine pay for it together
    cpus: tuple[int, ...] = ()  # logical CPUs it may run on, where it has a share of them
    members: tuple[str, ...] = ()  # provider ids of the other machines of a group
    pending_reason: str = ""  # why it is not running yet: "Unschedulable", "ImagePullBackOff"
    # No machine of its offering has room for it, and the provider knows of none that is on its way.
    is_out_of_stock: bool = False
    boot: BootProgress | None = None
    # Its machine runs, and starts its engine no more; None: it does, or is not known to restart engines.
    crash_loop: CrashLoop | None = None

    @property
    def instance_type(self) -> str:
        """The type in `offering`; empty when not said."""
        return OfferingKey.parse(self.offering).instance_type

    @property
    def zone(self) -> str:
        """The zone in `offering`; empty when not said."""
        return OfferingKey.parse(self.offering).zone


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeListing:
    """One reading of a fleet's nodes."""

    nodes: tuple[Node, ...]
    as_of: datetime  # nothing later than this is claimed; the instant of the request, unless the provider says better
    is_complete: bool = True  # False: pages are missing, so an absent node may be on one of them
    # What is not as it should be around the nodes, or is seen less well; said in the status, and keeps nothing from being done.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResult:
    """The result of one order of a batch: a node, or why there is none."""

    token: str
    node: Node | None = None
    error: FleetctlError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPace:
    """How fast a provider works, by its own account; seconds."""

    list_interval_s: float = 0.5  # between two listings; what the provider's rate limits leave room for
    list_latency_s: float = 0.2  # a listing's usual duration
    consistency_lag_s: float = 0.0  # a change may be missing from listings for this long
    list_deadline_s: float = 10.0
    describe_deadline_s: float = 10.0
    offerings_deadline_s: float = 10.0
    preflight_deadline_s: float = 10.0
    create_deadline_s: float = 60.0
    create_settles_s: float = 5.0  # a create, prepare or teardown that was cut off has its effect within this, or never
    prepare_deadline_s: float = 60.0
    teardown_deadline_s: float = 60.0
    stop_deadline_s: float = 30.0  # to take the order, not for the node to end

    def listing_age_s_max(self, taken_s: float) -> float:
        """Return how old the latest listing, which took `taken_s`, can be while the provider answers within its deadline.

        The next is asked for an interval after it, and may take its whole deadline. `list_latency_s` is no limit: a
        provider that is slower than it says, or than it was, answers all the same.
        """
        return taken_s + self.list_interval_s + self.list_deadline_s + _LISTING_LATE_S
