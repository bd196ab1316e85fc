"""The host `node`: a fleet's controller and gateway on a head that its provider makes, spoken to through a tunnel."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fleetctl import os_signals
from fleetctl.codec import decode, encode
from fleetctl.environment import STATE_URL, FleetEnvironment
from fleetctl.errors import FleetctlError, StateError, UnavailableError
from fleetctl.files import write_whole
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.head import CERTIFICATE, HeadState
from fleetctl.model.log import LogChunk
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.model.provider_setting import ProviderSetting, SettingKind
from fleetctl.paths import FleetPaths
from fleetctl.ports.host import STATUS_S, FleetProcesses
from fleetctl_host_local import controller_client, gateway_client
from fleetctl_host_local.host import LocalHost
from fleetctl_host_node.orders import HeadOrders, waited
from fleetctl_host_node.tunnel import Tunnel, TunnelEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleetctl.model.head import Head, HeadRecord, HeadStatus
    from fleetctl.model.request_trace import RequestTraces, TraceQuery
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.host import HostPlace
    from fleetctl.ports.runtime import Stall

T = TypeVar("T")
# A boot, an installation of fleetctl with its dependencies, a lease that has to run out before.
_READY_S = 900.0
_POLL_S, _LOOK_S = 0.5, 5.0
_REMOVED_S = 420.0
# A head that has been at work, gives no sign of life any more and is not reached for this long is dead to a fleet that goes
# down: its machine may hang, or its network.
_DEAD_S = 45.0
_SETTLING_S = 20.0
_ENVIRONMENT = "environment"
_ADDRESS = r"[0-9a-fA-F.:]+(/\d+)?"
SETTINGS = (
    ProviderSetting(
        name="instance_type", description="The head's machine. Unset: the provider's smallest that will do."
    ),
    ProviderSetting(
        name="instance_profile",
        description="The instance profile, by name or ARN, whose role the head acts with: docs/aws-policy.json has its rights.",
    ),
    ProviderSetting(
        name="ami",
        description="The head's machine image: its id, or ssm: and the parameter that holds it. It needs cloud-init, sshd and "
        "Python 3.11 or newer, or apt-get. Unset: Ubuntu 24.04.",
        pattern=r"ami-[0-9a-f]+|ssm:/\S+",
        form="an image's id, such as ami-0a1b2c3d, or ssm:/a/parameter",
    ),
    ProviderSetting(
        name="security_group",
        description="The head's security group, by id or name, which somebody else has made. Unset: one of its own.",
    ),
    ProviderSetting(
        name="open_to",
        kind=SettingKind.TEXTS,
        description="The addresses that may reach the head's sshd, and its gateway where that listens beyond loopback. With one "
        "beyond private networks it has a public address. Unset: the addresses of its VPC.",
        pattern=_ADDRESS,
        form="addresses, such as [203.0.113.7/32]",
    ),
    ProviderSetting(
        name="elastic_ip",
        description="An Elastic IP of yours, by its allocation id, that leads to the head, and to the next one when that is "
        "replaced: clients keep their address. It takes open_to to be of use. Unset: each head has another address.",
        pattern=r"eipalloc-[0-9a-f]+",
        form="an allocation's id, such as eipalloc-0a1b2c3d",
    ),
    ProviderSetting(
        name="tunnel",
        description="How commands reach the head: ssh, or ssm (through AWS's Session Manager). Unset: ssm where its plugin is "
        "installed and the head has no public address, else ssh.",
        pattern="ssh|ssm",
        form="ssh or ssm",
    ),
)


class NodeHost:
    """Implements RemoteHost."""

    name = "node"
    declared = SETTINGS

    def placed(self, place: HostPlace) -> PlacedNodeHost:
        """Return the host of one fleet."""
        return PlacedNodeHost(place)

    def judged(self, place: HostPlace, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return the findings without what is said of a gateway here, and those on the head."""
        kept = tuple(each for each in found if each.name != "gateway")
        if not os.environ.get(STATE_URL, ""):
            detail = "the state is this machine's own file, which no head reads"
            hint = f"export {STATE_URL}=s3://BUCKET/PREFIX (docs/shared-state.md)"
            return (*kept, Finding(name="state", verdict=Verdict.FAIL, detail=detail, hint=hint))
        try:
            orders, settings = HeadOrders(place, state_url=""), place.record.choice.settings
            if (image := orders.kept_image()) is not None:
                settings = {**settings, "ami": waited(orders.heads.image(settings, image)).id}
            return (*kept, *waited(orders.heads.findings(settings)))
        except FleetctlError as exc:
            return (
                *kept,
                Finding(name="head", verdict=Verdict.FAIL, detail=exc.message, hint=exc.hint or "see docs/aws.md"),
            )


class PlacedNodeHost(LocalHost):
    """Implements Host for one fleet: its locks and files are this machine's, its processes are the head's."""

    name = "node"

    def __init__(self, place: HostPlace) -> None:
        self._place = place
        self._orders = HeadOrders(place, state_url=os.environ.get(STATE_URL, ""))
        self._tunnel = Tunnel(FleetPaths(fleet=place.fleet))
        self._looked_s = -_LOOK_S
        self._shown: set[str] = set()
        self._machine = "ID"  # the head's that was looked at last
        self._head: HeadStatus | None = None
        self._head_read_s = 0.0

    def ensure_controller(self, fleet: str, *, is_wanted: Callable[[], bool], within_s: float | None = None) -> None:
        """Return once the head's controller answers, through a tunnel; have a head made where there is none. Raises UnavailableError."""
        clock = self._place.clock
        within_s = _READY_S if within_s is None else min(within_s, _READY_S)
        until_s = clock.monotonic_s() + within_s
        looked_s = clock.monotonic_s() - _LOOK_S
        text, silent_since_s = "nothing is seen of it", math.inf
        while clock.monotonic_s() < until_s:
            if self._answers(fleet):
                return
            if self._place.store.fleet(fleet) is None and not is_wanted():
                return
            if clock.monotonic_s() - looked_s >= _LOOK_S:
                looked_s = clock.monotonic_s()
                text, is_unreachable = self._approached()
                # Its controller is at work by its lease and reads what is written with its next tick: a laptop that has no
                # way to it has nothing to wait for.
                if is_unreachable and self.processes(fleet).has_controller:
                    return
                silent_since_s = min(silent_since_s, looked_s) if is_unreachable else math.inf
                if looked_s - silent_since_s >= _DEAD_S and self._ends_dead(fleet):
                    silent_since_s = math.inf
            # Its head is ordered, and whatever command comes next goes on from there: nobody has to wait for it.
            with os_signals.let_through():
                clock.sleep_blocking(_POLL_S)
        raise UnavailableError(
            f"the head of {fleet} does not answer after {within_s:.0f} s: {text}",
            hint=f"what its machine wrote: `aws ec2 get-console-output --latest --output text --instance-id {self._machine}`; "
            "once it is terminated, the next command makes another",
        )

    def _ends_dead(self, fleet: str) -> bool:
        """End the head of a fleet that goes down, where it was at work and its lease has run out; the next look orders another.

        That one sees the fleet's nodes gone. Of a fleet that is up it is left: its gateway may serve others than us.
        """
        order, desired = self._orders.newest(), self._place.store.fleet(fleet)
        sign = self._orders.sign(order) if order is not None else None
        lease = self._place.store.lease(fleet)
        has_worked = sign is not None and lease is not None and lease.renewed_at >= sign.up_at
        if order is None or not has_worked or desired is None or desired.phase is not DesiredPhase.DOWN:
            return False
        if self.processes(fleet).has_controller:
            return False
        self._show(
            f"head {order.number} has not been reached for {_DEAD_S:g} s and gives no sign of life: "
            "it is ended, and another one takes the fleet down"
        )
        waited(self._orders.heads.end(order))
        return True

    def environment(self, fleet: str) -> FleetEnvironment | None:
        """Return what is kept with the head's secrets. Raises StateError, ProviderError."""
        text = waited(self._orders.heads.secret(self._place.store.owner, fleet, _ENVIRONMENT))
        try:
            return decode(FleetEnvironment, text) if text else None
        except msgspec.MsgspecError as exc:
            raise StateError(f"the environment of {fleet} cannot be read", hint="run `fleetctl up` again") from exc

    def keep_environment(self, fleet: str, environment: FleetEnvironment | None) -> None:
        """Keep what is as true on the head with the head's secrets; it goes with them."""
        if environment is None:
            return
        heads = self._orders.heads
        there = FleetEnvironment(inherited=heads.inherited(environment.inherited), variables=environment.variables)
        waited(heads.put_secret(self._place.store.owner, fleet, _ENVIRONMENT, encode(there).decode(), replaces=True))

    def keep_certificate(self, fleet: str, pem: str) -> None:
        """Keep the gateway's key and certificate with the head's secrets, where they differ from what is there."""
        heads, owner = self._orders.heads, self._place.store.owner
        if waited(heads.secret(owner, fleet, CERTIFICATE)) != pem:
            waited(heads.put_secret(owner, fleet, CERTIFICATE, pem, replaces=True))

    def refresh_image(self, fleet: str) -> None:
        """Look the next head's image up anew."""
        del fleet  # it is the host of one
        self._orders.refresh_image()

    def head_status(self) -> HeadStatus | None:
        """Return the newest head as its order and its sign say, read at most every 5 s: whoever watches asks every second."""
        now_s = self._place.clock.monotonic_s()
        if self._head is None or now_s - self._head_read_s >= _LOOK_S:
            self._head, self._head_read_s = self._orders.status(), now_s
        return self._head

    def processes(self, fleet: str) -> FleetProcesses:
        """Return whether both live, by the lease: its controller gives a sign of life every 5 s. Their numbers are the head's."""
        lease = self._place.store.lease(fleet)
        if lease is None or not lease.is_living(self._place.clock.now()):
            return FleetProcesses()
        return FleetProcesses(controller_pid=0, gateway_pid=0)

    def stalls(self, fleet: str) -> tuple[Stall | None, Stall | None]:
        """Return nothing: controller and gateway watch each other there."""
        return None, None

    def wake(self, fleet: str) -> bool:
        """Have the controller decide now; False: it does not answer."""
        try:
            self._through(lambda: controller_client.wake(fleet))
        except UnavailableError:
            return False
        return True

    def status(self, fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
        """Return the controller's status. Raises UnavailableError; a head that is gone is replaced meanwhile."""
        return self._through(lambda: controller_client.status(fleet, deadline_s=deadline_s))

    def request_traces(self, fleet: str, query: TraceQuery) -> RequestTraces:
        """Return what the gateway remembers of requests. Raises UnavailableError."""
        return self._through(lambda: gateway_client.request_traces(fleet, query))

    def stream(self, fleet: str) -> AsyncIterator[FleetStatus]:
        """Yield the controller's statuses; whoever watches asks for one first, which opens the tunnel. Raises UnavailableError."""
        return controller_client.stream(fleet)

    def logs(self, fleet: str) -> str:
        """Return where the logs are."""
        return f"/var/lib/fleetctl/fleets/{fleet}/logs of its head"

    def read_log(self, fleet: str, process: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of a process's log, read there. Raises UnavailableError."""
        end = self._end()
        if end is None:
            raise UnavailableError(f"{fleet} has no head that is up", hint=f"fleetctl status {fleet}")
        self._tunnel.open(end)
        raw = self._tunnel.run(end, f"{process} {bytes_max}" + ("" if after is None else f" {after}"))
        try:
            return decode(LogChunk, raw)
        except msgspec.MsgspecError as exc:
            raise UnavailableError(f"the head of {fleet} gave no log: {raw[:200]!r}") from exc

    def clean_up(self, fleet: str) -> None:
        """End the head and what was made for it, and see it gone. Raises UnavailableError where that takes too long."""
        order, clock = self._orders.newest(), self._place.clock
        self._tunnel.close()
        if order is None:
            return
        until_s = clock.monotonic_s() + _REMOVED_S
        self._show(f"ending the head of {fleet}")
        while not waited(self._orders.heads.remove(order)):
            if clock.monotonic_s() >= until_s:
                raise UnavailableError(
                    f"the head of {fleet} has not ended after {_REMOVED_S:g} s",
                    hint=f"run it again: fleetctl down {fleet}",
                )
            clock.sleep_blocking(_POLL_S)
        self._orders.forget()

    def _through(self, call: Callable[[], T]) -> T:
        """Return what a call over the tunnel returns; where it fails the way there is looked after, at most every 5 s."""
        try:
            return call()
        except UnavailableError:
            now_s = self._place.clock.monotonic_s()
            if now_s - self._looked_s < _LOOK_S:
                raise
            self._looked_s = now_s
        try:
            self._approached()
        except UnavailableError:
            raise
        except FleetctlError as exc:
            raise UnavailableError(f"the head of {self._place.fleet}: {exc.message}", hint=exc.hint) from exc
        return call()

    def _answers(self, fleet: str) -> bool:
        try:
            controller_client.status(fleet)
        except UnavailableError:
            return False
        return True

    def _approached(self) -> tuple[str, bool]:
        """Come one step nearer to the controller: order, machine, sign, tunnel. Return how far that is, and whether ssh fails."""
        order, head = self._orders.standing()
        self._machine, name = head.id, f"head {order.number} ({head.id})"
        if head.state is HeadState.STOPPED:
            raise UnavailableError(
                f"{name} was stopped", hint=f"start it: aws ec2 start-instances --instance-ids {head.id}"
            )
        if head.state is not HeadState.RUNNING:
            return self._show(f"{name}: its machine starts"), False
        end = self._end_of(order, head)
        if end is None:
            return self._show(f"{name}: running at {head.address}, installing fleetctl"), False
        try:
            self._tunnel.open(end)
        except UnavailableError as exc:
            return self._show(exc.message), True
        return self._show(f"{name}: up, its controller starts"), False

    def _end(self) -> TunnelEnd | None:
        order = self._orders.newest()
        head = waited(self._orders.heads.find(order)) if order is not None else None
        return self._end_of(order, head) if order is not None and head is not None else None

    def _end_of(self, order: HeadRecord, head: Head) -> TunnelEnd | None:
        """Return where a tunnel to a head leads, its key at hand; None: it has left no sign yet."""
        sign = self._orders.sign(order)
        if sign is None or sign.machine_id != head.id:
            return None
        if not self._tunnel.key.exists():
            FleetPaths(fleet=self._place.fleet).make()
            text = self._orders.private_key(order.owner)
            write_whole(self._tunnel.key, text.encode(), mode=0o600)
        address, command = self._orders.heads.reach(order, head)
        return TunnelEnd(sign=sign, address=address, proxy_command=command, port=order.gateway_port)

    def _show(self, text: str) -> str:
        if text not in self._shown:
            self._shown.add(text)
            self._place.tell(text)
        return text
