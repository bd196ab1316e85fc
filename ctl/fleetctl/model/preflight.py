"""What is looked at before anything is started, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.model.catalogue import Offering
from fleetctl.model.cpu_share import CpuShare
from fleetctl.model.node import Mount
from fleetctl.model.remote_weights import RemoteWeights


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"  # works, with something to know
    FAIL = "fail"  # will not work until mended


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a provider's preflight looked at: a right, a quota, a limit, a setting."""

    name: str
    verdict: Verdict
    detail: str
    hint: str = ""  # what to do about it; never empty where the verdict is not OK


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNodes:
    """Nodes of one offering that a plan asks for, to be looked at before they are ordered."""

    offering: Offering
    count: int  # in all
    to_create: int  # of them; the others are there
    gpu_count: int = 0  # GPUs pinned to each replica; 0: it needs none
    gpu_memory_fraction: float = 0.0  # of each of them, that its engine takes; 0: not known
    node_count: int = 1  # machines that each replica spans, with these GPUs on each of them
    cpu: CpuShare | None = None  # of a machine without GPUs; None: whatever its engine takes
    image: str = ""  # of its container; empty where its engine has none of its own
    weights: RemoteWeights | None = None  # that each node fetches before its engine starts; None: none
    mounts: tuple[Mount, ...] = ()  # of the machine, that its container sees; none where its engine has no image
