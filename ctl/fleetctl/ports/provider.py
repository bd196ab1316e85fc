"""What fleetctl needs from whoever sells nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleetctl.model.boot import BootPhase
from fleetctl.ports.heads import Heads
from fleetctl.ports.images import NodeImages
from fleetctl.ports.infrastructure import Infrastructure

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.catalogue import Offering, OfferList
    from fleetctl.model.log import LogChunk
    from fleetctl.model.node import CreateResult, Node, NodeListing, NodeProcess, NodeRequest, ProviderPace
    from fleetctl.model.node_place import NodePlace
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.model.provider_setting import ProviderSetting, SettingValue
    from fleetctl.model.shared import SharedResource
    from fleetctl.model.tagged import TaggedListing, TaggedResource

# Replaces references in an engine's environment (env:NAME, file:PATH) by what they lead to. Raises ConfigError.
# Called by the provider right before an engine is started; what it returns is neither kept nor logged.
ResolveSecrets = Callable[[Mapping[str, str]], dict[str, str]]


class NodeEvents(Protocol):
    """Capability of providers that tell of changes by themselves (SQS, IMDS, informers)."""

    def watch(self, *, owner: str, fleet: str) -> AsyncIterator[Node]:
        """Yield a fleet's nodes as they change, for ever. Events may be lost: the listings make up for them.

        Raises ProviderError when the stream breaks; it is then opened again.
        """
        ...


class OfferingEvents(Protocol):
    """Capability of providers that see when what they sell changes: machines that come, go, or take nothing new."""

    def watch_offerings(self) -> AsyncIterator[frozenset[str]]:
        """Yield with every change, for ever, the keys of the offerings that there is more of than before; often of none.

        `offerings` then says what is sold. May be lost: it is read now and then anyway. Raises ProviderError when it
        breaks; it is then opened again.
        """
        ...


class ReplicaTargets(Protocol):
    """Capability of providers that guard a lane's nodes against others, who end them one by one: drains, upgrades."""

    def note_targets(
        self, *, owner: str, fleet: str, wanted: Mapping[str, int], moved: Mapping[str, str], epoch: int
    ) -> None:
        """Take in how many replicas each lane is to have, whatever is there; with every decision, and without a call.

        `moved` names the lane of each replica that serves another than it was ordered for, by its id. What is wanted of
        a fleet that goes down, and of a lane that is not named, is nothing. `epoch` is that of the controller's lease: what
        is written by these targets is not to replace what a newer controller wrote.
        """
        ...


class Interruptions(Protocol):
    """Capability of providers whose spot nodes can be interrupted on request, for drills."""

    async def interrupt(self, node_id: str, *, notice_s: float) -> None:
        """Give notice now and take the node `notice_s` later, as a cloud does. 0: no notice, taken at once.

        Whoever calls may end meanwhile. Of two calls the earlier deadline counts. Raises ProviderError for a node that is not
        there, or no spot node; UnavailableError for one that has no machine yet.
        """
        ...


class NodeLogs(Protocol):
    """Capability of providers that keep what engines write."""

    async def read_log(self, *, owner: str, fleet: str, replica_id: str, after: int | None, bytes_max: int) -> LogChunk:
        """Return what a replica's engine wrote behind byte `after`, at most `bytes_max`; None: the end of it.

        A replica that wrote nothing, or of which nothing is kept, has an empty log.
        """
        ...


class EngineRestarts(Protocol):
    """Capability of providers that can start a node's engine anew without giving the node up.

    Not of those that do so by themselves, as a kubelet does by a liveness probe.
    """

    async def restart(self, node_id: str, *, started_before: datetime) -> None:
        """End a node's engine and have it started again, by the same order; return once the old one has ended.

        One that was started after that instant is left at it, so that the same call again changes nothing. Other engines
        on the machine run on. Raises ProviderError where it could not be restarted, UnavailableError where no answer came.
        """
        ...


class NodeProcesses(Protocol):
    """Capability of providers that can see the processes of their nodes."""

    async def processes(self, *, owner: str, fleet: str) -> Mapping[str, tuple[NodeProcess, ...]]:
        """Return the processes of each living node of a fleet, by its token; those that nobody has waited for included."""
        ...


class SharedResources(Protocol):
    """Capability of providers whose nodes need shared things around them."""

    def needed(self, *, owner: str, fleet: str) -> tuple[SharedResource, ...]:
        """Return what the fleet's nodes need, in the order it must be prepared; pure, the same for ever."""
        ...

    async def prepare(self, resource: SharedResource) -> None:
        """Make it there; idempotent by its token. One that was torn down is made again."""
        ...

    async def teardown(self, resource: SharedResource) -> None:
        """Remove it, after the fleet's last node; one that is not there is no error."""
        ...


class Preflight(Protocol):
    """Capability of providers that can check, before anything is created, what would fail."""

    async def findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        """Return what was looked at for these nodes: rights, quota, limits, settings; it changes nothing.

        Without nodes, what concerns all of them. `plan` and `doctor` show it; `up` starts nothing over a failure.
        """
        ...


class OfferLists(Protocol):
    """Capability of providers that know what is sold there even where they may not ask, and how they know it."""

    async def offer_list(self) -> OfferList:
        """Return everything that is sold, also what no order of ours could be for; changes nothing and needs no rights.

        What may not be read, or cannot be reached, is from a list with a date, and the answer says so.
        """
        ...


class LeftOutCapacity(Protocol):
    """Capability of providers that see capacity of which no replica can have any."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return what the last `offerings` left out and why, a sentence each; nothing before the first."""
        ...


class TaggedResources(Protocol):
    """Capability of providers that find what carries a state's tags, also of fleets that no record knows."""

    async def tagged(self, owner: str) -> TaggedListing:
        """Return everything with an owner's tags, nodes and heads included, in the order in which it can be removed.

        What has ended is left out; a kind that may not be listed is named with its fault.
        """
        ...

    async def remove_tagged(self, resource: TaggedResource) -> None:
        """Have it end; one that is not there is no error. Raises ProviderError while something else still holds it."""
        ...


class Places(Protocol):
    """Capability of providers whose credentials alone may lead to another account or cluster than a fleet's."""

    async def place(self) -> NodePlace | None:
        """Return where nodes are listed and made; one cheap call that changes nothing. None: that may not be read.

        A controller asks it once, before any other call about nodes, and keeps a fleet nowhere but where its nodes are.
        """
        ...


class ProviderSettings(Protocol):
    """Capability of providers that a profile says more to than their name: where they work, and by what."""

    @property
    def declared(self) -> tuple[ProviderSetting, ...]:
        """Return every setting there is; a profile with another, or a value that does not fit, is refused."""
        ...

    def configured(self, given: Mapping[str, SettingValue]) -> Provider:
        """Return another provider that works by these, which are declared and fit; cheap, and without a call.

        What is not given is as in the provider that was constructed without any: by its variables of the environment.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCapabilities:
    """The optional abilities of a provider; None and 1 mean it cannot."""

    batch_max: int = 1  # orders in one `create`
    alternatives_max: int = 0  # further offerings in one order, from which the provider picks
    node_groups: bool = False  # one replica over several machines
    fetches_weights: bool = False  # its nodes fetch `NodeRequest.weights` before their engines start
    runs_here: bool = False  # its nodes are processes of this machine, started with the programs that are on it
    events: NodeEvents | None = None
    offering_events: OfferingEvents | None = None  # None: what is sold is read every few minutes
    targets: ReplicaTargets | None = None
    interruptions: Interruptions | None = None
    shared: SharedResources | None = None
    preflight: Preflight | None = None
    places: Places | None = None
    logs: NodeLogs | None = None
    restarts: EngineRestarts | None = None
    processes: NodeProcesses | None = None
    settings: ProviderSettings | None = None
    heads: Heads | None = None
    tagged: TaggedResources | None = None
    offer_lists: OfferLists | None = None  # None: `offerings` is all there is to know
    left_out: LeftOutCapacity | None = None
    infrastructure: Infrastructure | None = None
    images: NodeImages | None = None  # None: nodes start no containers, or by their images' names alone
    # Of a start, which its nodes' `boot` names: what is usual here, and where to look. What is not named here is as everywhere.
    boot_phases: tuple[BootPhase, ...] = ()
    # What its calls read of the environment, credentials too; a name that ends in * stands for all that begin so. A
    # controller gets these beside the common ones, whichever shell starts it, and nothing else of the user's secrets.
    variables: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where an engine is to listen."""

    host: str
    port: int


class Provider(Protocol):
    """The port of a seller of nodes, reached by the entry point group `fleetctl.provider`; constructed without arguments, cheap to construct.

    Every call may raise ProviderError or a subclass, each with its meaning: ThrottledError (asked too often: the same
    call again after `retry_after_s`), CapacityError (no stock of some type x zone x market), QuotaError (an account's
    limit, named), CredentialsError, AmbiguousOutcomeError (it may have happened). Calls are given the deadlines of
    `pace`; a call cut off by its deadline may have had its effect.
    """

    name: str

    @property
    def pace(self) -> ProviderPace:
        """How fast it works, and how long each call may take."""
        ...

    @property
    def capabilities(self) -> ProviderCapabilities:
        """What it can do beyond these calls."""
        ...

    async def offerings(self) -> tuple[Offering, ...]:
        """Return what is sold, prices included."""
        ...

    async def listen_addresses(self, count: int, *, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return where new engines may listen: free ports of this machine, or the same fixed one on machines of their own."""
        ...

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Start a node for each order, at most `batch_max`; idempotent by `token`; a result for each, in order.

        A token that already has a node yields that node, ended ones included. An error of the whole call is raised; an
        error of one order is in its result, and then that order had no effect unless it is an AmbiguousOutcomeError.
        """
        ...

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return every node with these tags, those that ended lately included (state GONE, with their exit reason)."""
        ...

    async def describe(self, token: str, *, owner: str) -> Node | None:
        """Return an order's node, though listings may not show it yet; None: there is none, or no longer."""
        ...

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Ask a node to end; after `grace_s` it is made to. Returns at once; idempotent; unknown ids are no error."""
        ...
