"""The cloud's process: moto's server behind our layer, on one port, until it is told to end or its parent does."""

from __future__ import annotations

import os
import random
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

# moto reads these as it is imported: bogus types and images must not launch.
os.environ["MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION"] = "1"
os.environ["MOTO_ENABLE_AMI_VALIDATION"] = "1"

import moto.ec2.urls
from moto.ec2.models.subnets import Subnet
from moto.ec2.models.vpcs import VPCBackend
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.account import ACCOUNT, CloudAccount
from tests.aws.cloud.admin import AdminPages
from tests.aws.cloud.commands import InstanceCommands
from tests.aws.cloud.faults import FaultRules
from tests.aws.cloud.frontend import Frontend
from tests.aws.cloud.images import publish_images
from tests.aws.cloud.listings import ListingResponses
from tests.aws.cloud.machines import Machines
from tests.aws.cloud.network import InstanceNetwork, why_not_namespaced
from tests.aws.cloud.notices import EventBus

if TYPE_CHECKING:
    from collections.abc import Sequence

_TICK_S = 0.05


class _QuietRequests(MotoRequestHandler):
    """Logs no request: the journal has them."""

    def log_request(self, *_: Any) -> None:
        return


@dataclass
class CloudServer:
    """One cloud of tests."""

    account: CloudAccount
    admin: AdminPages
    frontend: Frontend
    host: str
    port: int
    _listening: BaseWSGIServer | None = None

    def run(self) -> None:
        """Serve until the process ends; an outage only pauses the listening."""
        while True:
            listening = self._bound()
            listening.serve_forever(poll_interval=_TICK_S)
            listening.server_close()
            SYSTEM_CLOCK.sleep_blocking(self._outage_s)

    _outage_s: float = 0.0

    def outage(self, seconds: float) -> None:
        """Stop listening for a time; connections to the port are refused meanwhile."""
        self._outage_s = seconds
        if self._listening is not None:
            threading.Thread(target=self._listening.shutdown, daemon=True).start()

    def bind(self) -> int:
        """Begin to listen, and return the port."""
        return int(self._bound().port)

    def _bound(self) -> BaseWSGIServer:
        if self._listening is None or self._outage_s:
            self._listening = make_server(
                self.host, self.port, self.frontend, threaded=True, request_handler=_QuietRequests
            )
            self._outage_s = 0.0
            self.port = self._listening.port
        return self._listening


def make_cloud(
    *, host: str, port: int, regions: Sequence[str], seed: int, boots: bool = False, loopback: bool = False
) -> CloudServer:
    """Put a cloud together; it listens once it is bound. Where instances boot it has one region, in which they do."""
    dice = random.Random(seed)
    account, faults, bus = CloudAccount(), FaultRules(seed), EventBus(dice)
    account.on_state.append(bus.state_change)
    network = _network(loopback=loopback) if boots else None
    if network is not None:
        host = "0.0.0.0"  # noqa: S104  # the instances' side and loopback
        _place_default_vpc(network.cidr)
    _make_spot_role()
    ListingResponses.account = account
    moto.ec2.urls.url_paths["{0}/"] = ListingResponses.dispatch
    facts: dict[str, Any] = {"images": {region: publish_images(region) for region in regions}, "regions": list(regions)}
    admin = AdminPages(account, faults, bus, facts)
    application = DomainDispatcherApplication(create_backend_app)
    frontend = Frontend(application, account, faults, admin, lambda _: None)
    admin.frontend = frontend
    server = CloudServer(account, admin, frontend, host, port)
    frontend.outage = server.outage
    if network is not None:
        facts |= {
            "namespaced": network.is_namespaced,
            "host": network.host,
            "cidr": network.cidr,
            "number": network.number,
        }
        server.bind()
        machines = Machines(account, network, port=server.port, region=regions[0])
        facts["directory"] = str(machines.directory)
        frontend.commands = InstanceCommands(machines, frontend.access).response
        admin.on_notice.append(machines.notice)
        admin.add("POST", "crash", lambda wanted: machines.crash(wanted["instance_id"]))
        admin.add("POST", "console", lambda wanted: machines.console(wanted["instance_id"]))
    threading.Thread(target=_advance, args=(account,), daemon=True, name="due-changes").start()
    return server


def _make_spot_role() -> None:
    """Have the role there that an account has since its first order of spot; a test may delete it."""
    iam_backends[ACCOUNT]["aws"].create_role(
        "AWSServiceRoleForEC2Spot", "{}", "/aws-service-role/spot.amazonaws.com/", permissions_boundary=None,
        description="", tags=[], max_session_duration="3600",
    )  # fmt: skip


def _network(*, loopback: bool) -> InstanceNetwork:
    reason = "as was wanted" if loopback else why_not_namespaced()
    if reason:
        sys.stderr.write(f"instances share this machine's network, on loopback addresses: {reason}\n")
    return InstanceNetwork.reserve(is_namespaced=not reason)


def _place_default_vpc(cidr: str) -> None:
    """Have moto make its default VPC where the instances' addresses really are."""
    create: Any = VPCBackend.create_vpc

    def placed(backend: Any, cidr_block: str, *arguments: Any, **named: Any) -> Any:
        return create(backend, cidr if named.get("is_default") else cidr_block, *arguments, **named)

    # The address of an instance that shuts down is still its own: within one cloud none is given twice.
    Subnet.del_subnet_ip = lambda _self, _ip: None  # type: ignore[assignment,method-assign]
    VPCBackend.create_vpc = placed  # type: ignore[assignment,method-assign]  # before its first backend


def _advance(account: CloudAccount) -> None:
    while True:
        account.advance()
        SYSTEM_CLOCK.sleep_blocking(_TICK_S)
