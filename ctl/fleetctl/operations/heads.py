"""What a head does for its fleet: it leaves its sign in the state, keeps the fleet's environment, controller and gateway."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from fleetctl.codec import decode
from fleetctl.environment import FleetEnvironment, controller_environment
from fleetctl.errors import MAKE_ROOM, FleetctlError, NotFoundError, StateError
from fleetctl.files import write_whole
from fleetctl.model.head import CERTIFICATE, HeadRecord, HeadSign, order_key, sign_key
from fleetctl.model.host_choice import HostRecord
from fleetctl.operations.staying import keep, leave
from fleetctl.paths import FleetPaths
from fleetctl.ports.records import Collection, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.operations.site import Site
    from fleetctl.ports.heads import Heads

_log = logging.getLogger("fleetctl.head")
_AGAIN_S = 5.0
_ENVIRONMENT_S = 20.0
_ADDRESS_S = 30.0
_ENVIRONMENT = "environment"
# Whoever took the fleet down ends its head at once; where that died on the way, the head ends itself.
ABANDONED_S = 600.0
_LEAVE_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadIdentity:
    """Which head this machine is."""

    owner: str
    fleet: str
    number: int
    machine_id: str
    address: str
    host_key: str


def keep_head(
    site: Site,
    identity: HeadIdentity,
    *,
    waits: Callable[[float], bool],
    is_over: Callable[[], None],
    is_up: Callable[[], None],
) -> None:
    """Keep the fleet until told to go. `is_up` is called once the sign is left, `is_over` once the fleet has been gone for long."""
    while not _left_sign(site, identity):
        if waits(_AGAIN_S):
            return
    is_up()
    watch = _Upkeep(site, identity, waits, is_over)
    keep(site, identity.fleet, waits=watch)
    leave(site, identity.fleet, within_s=_LEAVE_S)


class _Upkeep:
    """Waits between two looks at the fleet, and looks after its environment and its end meanwhile."""

    def __init__(
        self, site: Site, identity: HeadIdentity, waits: Callable[[float], bool], is_over: Callable[[], None]
    ) -> None:
        self._site = site
        self._identity = identity
        self._waits = waits
        self._is_over = is_over
        self._kept_s: float | None = None
        self._gone_s: float | None = None
        self._kept: FleetEnvironment | None = None
        self._address = _KeptAddress(site, identity)

    def __call__(self, seconds: float) -> bool:
        now_s = self._site.clock.monotonic_s()
        self._address.look(now_s)
        try:
            if self._kept_s is None or now_s - self._kept_s >= _ENVIRONMENT_S:
                self._keep_environment()
                self._kept_s = now_s
            self._look_for_end(now_s)
        except FleetctlError as exc:
            _log.error("%s", exc.message)  # tried again with the next look
            # No controller is started without what it is to be started with.
            return self._waits(seconds) if self._kept_s is not None else self._waits_for_environment()
        return self._waits(seconds)

    def _waits_for_environment(self) -> bool:
        while self._kept_s is None:
            if self._waits(_AGAIN_S):
                return True
            try:
                self._keep_environment()
                self._kept_s = self._site.clock.monotonic_s()
            except FleetctlError as exc:
                _log.error("%s", exc.message)
        return False

    def _keep_environment(self) -> None:
        """Have what `up` recorded on this machine: this machine's own paths, the fleet's variables and secrets."""
        fleet, owner = self._identity.fleet, self._identity.owner
        heads = _heads(self._site, fleet)
        if heads is None:
            return  # the fleet is gone
        text = asyncio.run(heads.secret(owner, fleet, _ENVIRONMENT))
        if not text:
            raise NotFoundError(f"the environment of {fleet} is not there yet", hint="`up` writes it")
        sent = decode(FleetEnvironment, text)
        own = controller_environment(os.environ, declared=("AWS_*", "FLEETCTL_*"))
        inherited = {**own, **sent.inherited, **{name: own[name] for name in _OURS if name in own}}
        kept = FleetEnvironment(inherited=inherited, variables=sent.variables)
        if kept != self._kept:
            self._site.host.keep_environment(fleet, kept)
            self._kept = kept
        self._keep_certificate(heads)

    def _keep_certificate(self, heads: Heads) -> None:
        """Have the gateway's certificate as a file of this machine, where the fleet has one; a renewed one replaces it."""
        fleet, owner = self._identity.fleet, self._identity.owner
        desired, paths = self._site.store.fleet(fleet), FleetPaths(fleet=fleet)
        if desired is None or desired.profile.gateway.tls is None:
            return
        pem = asyncio.run(heads.secret(owner, fleet, CERTIFICATE))
        if not pem:
            raise NotFoundError(f"the certificate of {fleet} is not there yet", hint="`up` writes it")
        try:
            if not paths.certificate.exists() or paths.certificate.read_text() != pem:
                paths.make()
                write_whole(paths.certificate, pem.encode(), mode=0o600)
        except OSError as exc:
            raise StateError(f"{paths.certificate} cannot be written: {exc.strerror}", hint=MAKE_ROOM) from exc

    def _look_for_end(self, now_s: float) -> None:
        if self._site.store.fleet(self._identity.fleet) is not None:
            self._gone_s = None
            return
        self._gone_s = self._gone_s if self._gone_s is not None else now_s
        if now_s - self._gone_s >= ABANDONED_S:
            _log.warning("fleet %s has been gone for %g s; this machine ends", self._identity.fleet, ABANDONED_S)
            self._is_over()


class _KeptAddress:
    """Takes the address that the fleet keeps for this head, while it is the newest: one that was replaced takes nothing back."""

    def __init__(self, site: Site, identity: HeadIdentity) -> None:
        self._site = site
        self._identity = identity
        self._looked_s: float | None = None
        self._shown = ""

    def look(self, now_s: float) -> None:
        """Take it, at most every half a minute; a failure is logged and tried again."""
        if self._looked_s is not None and now_s - self._looked_s < _ADDRESS_S:
            return
        self._looked_s = now_s
        try:
            text = self._taken()
        except FleetctlError as exc:
            text = f"the fleet's address does not lead here: {exc.message}"
        if text != self._shown:
            _log.warning("%s", text or "no address is kept for the fleet any more")
            self._shown = text

    def _taken(self) -> str:
        fleet, number = self._identity.fleet, self._identity.number
        heads = _heads(self._site, fleet)
        order = self._site.store.find_record(Collection.HEADS, order_key(number), fleet=fleet)
        newer = self._site.store.find_record(Collection.HEADS, order_key(number + 1), fleet=fleet)
        if heads is None or order is None or newer is not None:
            return ""
        address = asyncio.run(heads.take_address(order.value_as(HeadRecord), self._identity.machine_id))
        return f"the fleet's address {address} leads here" if address else ""


# What stands in this machine's settings is true of it alone.
_OURS = ("FLEETCTL_AWS_GATEWAY_SOURCE", "FLEETCTL_STATE", "FLEETCTL_ON_HEAD")


def _heads(site: Site, fleet: str) -> Heads | None:
    found = site.store.find_record(Collection.HOSTS, fleet, fleet=fleet)
    return site.provider(found.value_as(HostRecord).provider).capabilities.heads if found is not None else None


def _left_sign(site: Site, identity: HeadIdentity) -> bool:
    """Leave this head's sign in the state; False: that cannot be written now."""
    now = site.clock.now()
    sign = HeadSign(
        number=identity.number, machine_id=identity.machine_id, address=identity.address,
        host_key=identity.host_key, version=version("fleetctl"), up_at=now,
    )  # fmt: skip
    try:
        site.store.put_record(
            StoredRecord.of(Collection.HEADS, sign_key(identity.number), sign, at=now, fleet=identity.fleet)
        )
    except FleetctlError as exc:
        _log.error("%s", exc.message)
        return False
    return True
