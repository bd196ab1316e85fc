"""A head: the machine of its own that a fleet's controller and gateway run on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fleetctl.model.pinned_image import PinnedImage
from fleetctl.model.provider_setting import SettingValue

IMAGE_KEY = "image"  # in Collection.HEADS: the PinnedImage that the fleet's next head starts from
CERTIFICATE = "certificate"  # the secret that has the gateway's key and certificate
_SIGN = "sign-"
SSH_PORT = 2222  # of the head's own sshd, which forwards and does nothing else; the image's stays as it is


class HeadState(StrEnum):
    """What a provider says of a head's machine."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"  # by somebody, and not by us
    ENDED = "ended"  # for good: nothing of it acts any more


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRecord:
    """One order of a head, in the state before the provider is asked: whoever sends it again sends the same."""

    owner: str
    fleet: str
    number: int  # 1, 2, ... of the fleet's heads; the next is placed once this one is seen ended
    token: str
    state_url: str
    region: str  # empty: the provider's own
    program: str  # sha256 of the archive that it runs, which lies beside the state
    public_key: str  # of whoever may open tunnels to it
    gateway_port: int
    gateway_is_public: bool  # it listens beyond loopback
    settings: dict[str, SettingValue] = field(default_factory=dict)
    image: PinnedImage | None = None  # None: of a fleetctl that kept none; it is looked up at the launch
    placed_at: datetime

    @property
    def key(self) -> str:
        """Return its key in Collection.HEADS; keys sort as the numbers do."""
        return order_key(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSign:
    """What a head left in the state as it came up; written with its own rights, so that whoever reads it can trust it."""

    number: int
    machine_id: str
    address: str
    host_key: str  # of its sshd: "ssh-ed25519 AAAA..."
    version: str  # of fleetctl
    up_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStatus:
    """What faces show of a fleet's newest head, by its order and its sign."""

    number: int
    image: PinnedImage | None = None  # that it was ordered from; None: of a fleetctl that kept none
    machine_id: str = ""  # empty: it is not up yet
    address: str = ""  # within its network
    version: str = ""  # of its fleetctl
    up_at: datetime | None = None

    def __str__(self) -> str:
        """Return it in one line."""
        image = f", from {self.image}" if self.image is not None else ""
        if self.up_at is None:
            return f"number {self.number}, not up yet{image}"
        return f"{self.machine_id} at {self.address}, number {self.number}, fleetctl {self.version}{image}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A head's machine, as its provider shows it."""

    id: str
    state: HeadState
    address: str = ""  # within its network; empty: none yet
    public_address: str = ""
    reason: str = ""  # why it ended


def order_key(number: int) -> str:
    """Return the key of a head's order in Collection.HEADS."""
    return f"order-{number:06d}"


def sign_key(number: int) -> str:
    """Return the key of a head's sign in Collection.HEADS."""
    return f"{_SIGN}{number:06d}"


def is_sign_key(key: str) -> bool:
    """Whether a key of Collection.HEADS is that of a head's sign."""
    return key.startswith(_SIGN)
