"""A fleet's heads, one after another: an order in the state before the provider is asked, the next once one is seen ended."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fleetctl.errors import ConfigError, FleetctlError, ProviderError, UnavailableError
from fleetctl.model.action import EntryKind
from fleetctl.model.head import IMAGE_KEY, Head, HeadRecord, HeadSign, HeadState, HeadStatus, sign_key
from fleetctl.model.journal import JournalEntry
from fleetctl.model.pinned_image import PinnedImage
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import FLEET
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl_host_node.archive import make_archive

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime

    from fleetctl.ports.heads import Heads
    from fleetctl.ports.host import HostPlace

T = TypeVar("T")
CLIENT_KEY = "client-key"
_ORDERS = "order-"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def waited(call: Coroutine[object, object, T]) -> T:
    """Return what a provider's call returns. Hosts' calls block: where a loop turns they are in a thread of their own."""
    return asyncio.run(call)


class HeadOrders:
    """The orders of one fleet's heads, in the state that all share."""

    def __init__(self, place: HostPlace, *, state_url: str) -> None:
        self.place = place
        self.state_url = state_url

    @cached_property
    def heads(self) -> Heads:
        """The provider's ability to make heads. Raises ConfigError where it has none."""
        provider = self.place.provider()
        found = provider.capabilities.heads
        if found is None:
            raise ConfigError(
                f"provider {provider.name} makes no machine for a head",
                hint="host: node is for providers that do, as aws; elsewhere leave host out",
                key=("host",),
            )
        return found

    def newest(self) -> HeadRecord | None:
        """Return the newest order; None: none was placed, or all is cleaned up."""
        found = [each for each in self._records() if each.key.startswith(_ORDERS)]
        return max(found, key=lambda each: each.key).value_as(HeadRecord) if found else None

    def sign(self, order: HeadRecord) -> HeadSign | None:
        """Return what an order's head left in the state; None: it is not up yet."""
        found = self.place.store.find_record(Collection.HEADS, sign_key(order.number), fleet=self.place.fleet)
        return found.value_as(HeadSign) if found is not None else None

    def status(self) -> HeadStatus | None:
        """Return what the state has of the newest head; None: none was ordered."""
        order = self.newest()
        if order is None:
            return None
        sign = self.sign(order)
        if sign is None:
            return HeadStatus(number=order.number, image=order.image)
        return HeadStatus(
            number=order.number, image=order.image, machine_id=sign.machine_id, address=sign.address,
            version=sign.version, up_at=sign.up_at,
        )  # fmt: skip

    def standing(self) -> tuple[HeadRecord, Head]:
        """Return the newest order and its machine, launched now if it was not; the next order's where that has ended."""
        order = self.newest() or self._placed(None, "it has none yet")
        head = waited(self.heads.ensure(order))
        if head.state is HeadState.ENDED:
            order = self._placed(order, head.reason or "it is gone")
            head = waited(self.heads.ensure(order))
        return order, head

    def kept_image(self) -> PinnedImage | None:
        """Return the image that the fleet's heads start from; None: none is kept yet."""
        found = self.place.store.find_record(Collection.HEADS, IMAGE_KEY, fleet=self.place.fleet)
        return found.value_as(PinnedImage) if found is not None else None

    def refresh_image(self) -> None:
        """Keep what the image's name stands for now for the next head, and tell of one that has moved; the head that runs stays."""
        if self.newest() is None:
            return  # the first order looks it up
        kept = self.kept_image()
        try:
            image = self._kept_now(None)
        except FleetctlError as exc:
            stays = f"stays {kept}" if kept is not None else "is looked up as it is ordered"
            self.place.tell(f"the image of {self.place.fleet}'s next head {stays}: {exc.message}")
            return
        if image != kept:
            why = f"the next head of {self.place.fleet} starts from {image}"
            self.place.store.append((self._entry(why, self.place.clock.now()),))
            self.place.tell(f"{why}; the one that runs stays")

    def _kept_now(self, kept: PinnedImage | None) -> PinnedImage:
        """Return the image for the next head, kept from now on."""
        place = self.place
        image = waited(self.heads.image(place.record.choice.settings, kept))
        if image != kept:
            place.store.put_record(
                StoredRecord.of(Collection.HEADS, IMAGE_KEY, image, at=place.clock.now(), fleet=place.fleet)
            )
        return image

    def is_gone(self) -> bool:
        """Whether the newest order's machine is seen ended."""
        order = self.newest()
        if order is None:
            return False
        head = waited(self.heads.find(order))
        return head is not None and head.state is HeadState.ENDED

    def forget(self) -> None:
        """Remove every order and sign: nothing of them is left."""
        for each in self._records():
            self.place.store.remove_record(Collection.HEADS, each.key, fleet=self.place.fleet)

    def _records(self) -> list[StoredRecord]:
        return list(self.place.store.records(Collection.HEADS, fleet=self.place.fleet))

    def _placed(self, before: HeadRecord | None, reason: str) -> HeadRecord:
        """Write the next order down, unless somebody else has; what it needs is kept before it can be launched."""
        place, store = self.place, self.place.store
        archive, digest = make_archive()
        number = before.number + 1 if before is not None else 1
        order = HeadRecord(
            owner=store.owner, fleet=place.fleet, number=number, token=_token(store.owner, place.fleet, number),
            state_url=self.state_url, region="", program=digest, public_key=self._public_key(store.owner),
            gateway_port=place.record.port, gateway_is_public=place.record.address not in _LOOPBACK,
            settings=dict(place.record.choice.settings), image=self._kept_now(self.kept_image()), placed_at=place.clock.now(),
        )  # fmt: skip
        waited(self.heads.keep_program(order, archive))
        found = self.newest()
        if found is not None and found.number >= number:
            return found
        why = f"head {number} of {place.fleet} is ordered, from {order.image}" + (
            f": head {number - 1} has ended ({reason})" if before else ""
        )
        store.put_record(StoredRecord.of(Collection.HEADS, order.key, order, at=order.placed_at, fleet=place.fleet))
        store.append((self._entry(why, order.placed_at),))
        place.tell(why)
        return order

    def _entry(self, reason: str, at: datetime) -> JournalEntry:
        return JournalEntry(
            seq=0, at=at, fleet=self.place.fleet, kind=EntryKind.OPERATOR, subject=FLEET, action="head",
            code=ReasonCode.OPERATOR, reason=reason,
        )  # fmt: skip

    def _public_key(self, owner: str) -> str:
        """Return the public half of the key that opens tunnels, which whoever may read the fleet's secrets shares."""
        private = self.private_key(owner)
        if not private:
            waited(self.heads.put_secret(owner, self.place.fleet, CLIENT_KEY, _new_key(), replaces=False))
            private = self.private_key(owner)
        if not private:
            raise UnavailableError("the key of the head's tunnel was written and is not there", hint="run it again")
        return _public_half(private)

    def private_key(self, owner: str) -> str:
        """Return the key that opens tunnels; empty: there is none."""
        return waited(self.heads.secret(owner, self.place.fleet, CLIENT_KEY))


def _token(owner: str, fleet: str, number: int) -> str:
    return f"head-{hashlib.sha256(f'{owner}/{fleet}'.encode()).hexdigest()[:16]}-{number}"


def _new_key() -> str:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "key"
        _keygen("-q", "-t", "ed25519", "-N", "", "-C", "fleetctl", "-f", str(path))
        return path.read_text()


def _public_half(private: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "key"
        path.touch(mode=0o600)
        path.write_text(private)
        return " ".join(_keygen("-y", "-f", str(path)).split()[:2])


def _keygen(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # an argument list, no shell
            ["ssh-keygen", *arguments], check=True, capture_output=True, text=True, timeout=20.0,  # noqa: S607  # OpenSSH's
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as exc:
        raise ProviderError(f"no key can be made: {exc}", hint="install the OpenSSH client") from exc
    return done.stdout
