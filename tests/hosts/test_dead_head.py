"""A head whose machine runs on and says nothing: a fleet that goes down does not wait for it, one that is up is left."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from fleetctl.errors import ProviderError, UnavailableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.head import Head, HeadRecord, HeadSign, HeadState, sign_key
from fleetctl.model.host_choice import HostChoice, HostRecord
from fleetctl.model.pinned_image import PinnedImage
from fleetctl.model.provider_setting import ProviderChoice
from fleetctl.ports.host import HostPlace
from fleetctl.ports.lease import LeaseHolder
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH, plan, profile
from fleetctl_host_node.host import PlacedNodeHost
from fleetctl_host_node.orders import HeadOrders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fleetctl.model.provider_setting import SettingValue
    from fleetctl.ports.provider import Provider

pytestmark = [
    pytest.mark.enable_socket,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH client: apt install openssh-client"),
]
FLEET = "demo"


class EnoughError(ProviderError):
    """The test has seen what it waited for."""


@dataclass
class SilentHeads:
    """Machines that all run, and that nobody reaches: nothing listens at the port of their sshd."""

    looks_max: int
    ended: list[int] = field(default_factory=list)
    launched: list[int] = field(default_factory=list)
    _secrets: dict[str, str] = field(default_factory=dict)
    _looks: int = 0

    async def image(self, settings: Mapping[str, SettingValue], kept: PinnedImage | None) -> PinnedImage:
        del settings
        return kept or PinnedImage(source="ami-1", id="ami-1")

    async def keep_program(self, order: HeadRecord, archive: bytes) -> None:
        assert order.program
        assert archive

    async def ensure(self, order: HeadRecord) -> Head:
        self._looks += 1
        if self._looks > self.looks_max:
            raise EnoughError("looked often enough")
        if order.number not in self.launched:
            self.launched.append(order.number)
        state = HeadState.ENDED if order.number in self.ended else HeadState.RUNNING
        return Head(id=f"i-{order.number}", state=state, address="127.0.0.1")

    async def end(self, order: HeadRecord) -> None:
        self.ended.append(order.number)

    async def put_secret(self, owner: str, fleet: str, name: str, text: str, *, replaces: bool) -> None:
        del owner, fleet, replaces
        self._secrets.setdefault(name, text)

    async def secret(self, owner: str, fleet: str, name: str) -> str:
        del owner, fleet
        return self._secrets.get(name, "")

    def reach(self, order: HeadRecord, head: Head) -> tuple[str, str]:
        assert order.number
        return head.address, ""


@dataclass
class Capable:
    """As much of a provider as heads need."""

    heads: SilentHeads
    name: str = "aws"

    @property
    def capabilities(self) -> Any:
        return self


@dataclass
class Laptop:
    """A machine that commands a fleet whose first head has been at work, and has been silent for a minute."""

    clock: ManualClock
    store: SqliteStore
    heads: SilentHeads
    shown: list[str] = field(default_factory=list)

    def host(self) -> PlacedNodeHost:
        record = HostRecord(
            choice=HostChoice(name="node"), provider=ProviderChoice(name="aws"), port=8080, address="127.0.0.1"
        )
        provider = cast("Provider", Capable(self.heads))
        place = HostPlace(
            fleet=FLEET, record=record, store=self.store, provider=lambda: provider, clock=self.clock,
            tell=self.shown.append,
        )  # fmt: skip
        HeadOrders(place, state_url="s3://bucket/team").standing()
        sign = HeadSign(
            number=1, machine_id="i-1", address="127.0.0.1", host_key="ssh-ed25519 AAAA", version="1", up_at=EPOCH
        )
        self.store.put_record(StoredRecord.of(Collection.HEADS, sign_key(1), sign, at=EPOCH, fleet=FLEET))
        holder = LeaseHolder(pid=1, host="head-1", boot_id="boot", started_at=EPOCH)
        self.store.acquire_lease(FLEET, holder, now=EPOCH + timedelta(seconds=5))
        self.clock.jump(65.0)
        return PlacedNodeHost(place)


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    store = SqliteStore(tmp_path / "state.db")
    store.put_fleet(profile(FLEET), plan(FLEET), now=EPOCH)
    yield Laptop(ManualClock(EPOCH), store, SilentHeads(looks_max=25))
    store.close()


def test_a_head_is_shown_by_its_order_until_it_is_up_and_by_its_sign_then(laptop: Laptop) -> None:
    host = laptop.host()
    shown = host.head_status()
    assert str(shown) == "i-1 at 127.0.0.1, number 1, fleetctl 1, from ami-1"
    laptop.store.remove_record(Collection.HEADS, sign_key(1), fleet=FLEET)
    assert host.head_status() == shown, "the state is not read for every look"
    laptop.clock.jump(6.0)
    assert str(host.head_status()) == "number 1, not up yet, from ami-1"


def test_down_ends_a_head_that_is_silent_and_has_another_take_the_fleet_down(laptop: Laptop) -> None:
    host = laptop.host()
    laptop.store.set_phase(FLEET, DesiredPhase.DOWN, now=EPOCH)
    begun_s = laptop.clock.monotonic_s()
    with pytest.raises(EnoughError):
        host.ensure_controller(FLEET, is_wanted=lambda: True)
    assert (laptop.heads.ended, laptop.heads.launched) == ([1], [1, 2])
    assert any("head 1 has not been reached for 45 s" in text for text in laptop.shown)
    assert laptop.clock.monotonic_s() - begun_s < 150.0


def test_a_fleet_that_is_up_keeps_a_head_that_only_this_machine_may_not_reach(laptop: Laptop) -> None:
    host = laptop.host()
    with pytest.raises((EnoughError, UnavailableError)):
        host.ensure_controller(FLEET, is_wanted=lambda: True)
    assert (laptop.heads.ended, laptop.heads.launched) == ([], [1])
