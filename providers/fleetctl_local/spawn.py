"""Starts processes that outlive their starter, and finds again the ones whose starter died before it took a note."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.environment import engine_environment
from fleetctl.errors import CapacityError, EngineMissingError, ProviderError
from fleetctl.log_files import begin_log
from fleetctl.model.catalogue import Market
from fleetctl.paths import FleetPaths, state_dir
from fleetctl_local import kernel, temporary_files
from fleetctl_local.gpus import BY_BUS, GPU_ORDER, VISIBLE_GPUS
from fleetctl_local.logs import log_path
from fleetctl_local.reclaim import OWNER_TAG, TOKEN_TAG
from fleetctl_local.registry import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.node import NodeRequest
    from fleetctl_local.gpus import Gpu
    from fleetctl_local.kernel import Ident

_PACKAGE_ROOT = Path(__file__).resolve().parent.parent
# execve has closed our lock some microseconds before the new environment can be read.
_NEWBORN_READS = 20
_NEWBORN_READ_S = 0.005


class _Detached(subprocess.Popen[bytes]):
    """A child that outlives its parent by design, so that forgetting its handle is no leak to warn of."""

    def __del__(self) -> None:
        """Leave the child alone; the kernel's table is what is asked later."""


def start_engine(
    request: NodeRequest,
    *,
    env: Mapping[str, str],
    gpus: tuple[Gpu, ...],
    cpus: tuple[int, ...] = (),
    temporary: str = "",
) -> Ident:
    """Start a node's process: own session, loopback, a log of its own. Raises ProviderError when it cannot be.

    `env` is the request's with its secrets resolved; `gpus` are pinned to it, none leaves the choice to it; it runs on
    `cpus`, none for all; `temporary` is its directory of temporary files, empty for the system's.
    """
    home = FleetPaths(fleet=request.fleet)
    home.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = begin_log(log_path(request.fleet, request.replica_id))
    surroundings = {**engine_environment(os.environ), **temporary_files.environment(temporary, os.environ)}
    try:
        with kernel.running_on(cpus):
            child = _Detached(
                request.argv,
                cwd=home.home,
                env={**surroundings, **env, **_pinned(gpus), **_tags(request, gpus, cpus, temporary)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except (FileNotFoundError, PermissionError, ValueError) as exc:
        raise EngineMissingError(
            f"cannot start {request.argv[0]!r} for {request.replica_id}: {exc}",
            hint="is the engine installed here? see `fleetctl doctor`",
        ) from exc
    except OSError as exc:
        raise CapacityError(
            f"this machine starts no more processes: {exc}", hint="stop something, or raise limits"
        ) from exc
    finally:
        log.close()
    return identify(child.pid)


def start_reclaimer(record: Record, *, wait_s: float, terminate: bool, mark: Path | None) -> Ident:
    """Start the process that ends a node at a deadline, whoever else dies."""
    leader = record.leader
    if leader is None:
        raise ValueError(f"{record.node_id} has no process to end")
    order = [
        str(leader.pid), leader.birth, f"{max(0.0, wait_s):.3f}", record.owner, record.token,
        "terminate" if terminate else "", str(mark or ""),
    ]  # fmt: skip
    # Without `site` an interpreter starts in 10 ms; off Linux the reclaimer needs psutil, which lives there.
    lean = ["-S"] if kernel.IS_LINUX else []
    child = _Detached(
        [sys.executable, *lean, "-m", "fleetctl_local.reclaim", *order],
        cwd="/",
        env={"PYTHONPATH": str(_PACKAGE_ROOT), "PATH": os.environ.get("PATH", os.defpath)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return identify(child.pid)


def identify(pid: int) -> Ident:
    """Return our own child's identity; it may be a zombie already, and has one all the same."""
    seen = kernel.look(pid)
    if seen is None:
        raise ProviderError(f"process {pid} vanished at its start", hint="something else reaps this process's children")
    return seen.ident


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A process that carries a node's tags."""

    seen: kernel.Seen
    record: Record


def scan(*, owner: str) -> dict[str, list[Tagged]]:
    """Return this owner's living tagged processes by token. Call it under the registry's lock."""
    found: dict[str, list[Tagged]] = {}
    for pid in kernel.pids():
        tags = _read_tags(pid)
        seen = kernel.look(pid)
        if seen is None or seen.is_zombie or tags.get(OWNER_TAG) != owner or TOKEN_TAG not in tags:
            continue
        record = _record_from(tags, seen)
        found.setdefault(record.token, []).append(Tagged(seen=seen, record=record))
    return found


def _pinned(gpus: tuple[Gpu, ...]) -> dict[str, str]:
    return {GPU_ORDER: BY_BUS, VISIBLE_GPUS: ",".join(gpu.visible_as for gpu in gpus)} if gpus else {}


def _tags(request: NodeRequest, gpus: tuple[Gpu, ...], cpus: tuple[int, ...], temporary: str) -> dict[str, str]:
    """Everything a record holds, so that one can be written from the process alone."""
    return {
        OWNER_TAG: request.owner,
        "FLEETCTL_FLEET": request.fleet,
        "FLEETCTL_STATE_DIR": str(state_dir()),  # whose node it is where the store that owns it is gone
        TOKEN_TAG: request.token,
        "FLEETCTL_REPLICA": request.replica_id,
        "FLEETCTL_LANE": request.lane,
        "FLEETCTL_MARKET": request.market.value,
        "FLEETCTL_HOST": request.host,
        "FLEETCTL_PORT": str(request.port),
        "FLEETCTL_OFFERING": request.offering,
        "FLEETCTL_GPUS": ",".join(str(gpu.index) for gpu in gpus),
        "FLEETCTL_GPU_UUIDS": ",".join(gpu.uuid for gpu in gpus),
        "FLEETCTL_CPUS": ",".join(map(str, cpus)),
        "FLEETCTL_TEMPORARY": temporary,
        "FLEETCTL_CREATED_AT": SYSTEM_CLOCK.now().isoformat(),
        # An engine that renames itself with setproctitle would overwrite its environment, and so its tags.
        "SPT_NOENV": "1",
    }


def _record_from(tags: dict[str, str], seen: kernel.Seen) -> Record:
    return Record(
        token=tags[TOKEN_TAG],
        owner=tags[OWNER_TAG],
        fleet=tags.get("FLEETCTL_FLEET", ""),
        replica_id=tags.get("FLEETCTL_REPLICA", ""),
        market=Market(tags.get("FLEETCTL_MARKET", Market.ON_DEMAND.value)),
        host=tags.get("FLEETCTL_HOST", ""),
        port=int(tags.get("FLEETCTL_PORT", "0")),
        created_at=datetime.fromisoformat(tags["FLEETCTL_CREATED_AT"]),
        leader=seen.ident,
        offering=tags.get("FLEETCTL_OFFERING", ""),
        temporary=tags.get("FLEETCTL_TEMPORARY", ""),
        gpu_indices=tuple(int(gpu) for gpu in tags.get("FLEETCTL_GPUS", "").split(",") if gpu),
        cpus=tuple(int(cpu) for cpu in tags.get("FLEETCTL_CPUS", "").split(",") if cpu),
        gpu_uuids=tuple(uuid for uuid in tags.get("FLEETCTL_GPU_UUIDS", "").split(",") if uuid),
    )


def _read_tags(pid: int) -> dict[str, str]:
    tags = kernel.environment(pid)
    for _ in range(_NEWBORN_READS):
        seen = kernel.look(pid)
        # Only a session's own leader can be a node just started; others without an environment are none of ours. Nor are
        # those that have been there for long, as each login's own sshd.
        if tags or seen is None or seen.is_zombie or seen.session != pid or not kernel.is_newborn(seen):
            break
        SYSTEM_CLOCK.sleep_blocking(_NEWBORN_READ_S)
        tags = kernel.environment(pid)
    return tags
