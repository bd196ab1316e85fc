"""The calls that a provider makes: each takes and returns one JSON object."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

from fleetctl_ssh.on_host import clocks, machine, processes, records, supervisor
from fleetctl_ssh.on_host.records import OwnerRecords, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT_S, _LOG_KEPT_S = 3600.0, 86_400.0  # after its end: an order's record, its engine's log
_ORDER_FIELDS = ("token", "owner", "fleet", "replica", "market", "offering", "host", "port", "expires_s")


def answer(name: str, call: dict[str, Any]) -> dict[str, Any]:
    """Return a call's answer; a refusal is one too."""
    try:
        return _CALLS[name](call)
    except RefusedError as exc:
        return {"refused": exc.kind, "message": str(exc)}


def _create(call: dict[str, Any]) -> dict[str, Any]:
    kept, token = OwnerRecords(call["owner"]), call["token"]
    with records.locked():
        known = records.read(kept.order(token))
        if known is None:
            return {"node": _shown(kept, _made(kept, call))}
        if (known["fleet"], known["replica"]) != (call["fleet"], call["replica"]):
            message = f"token {token} belongs to {known['replica']}, not to {call['replica']}"
            raise RefusedError("taken", message)
        return {"node": _shown(kept, known)}


def _made(kept: OwnerRecords, call: dict[str, Any]) -> dict[str, Any]:
    """Start an order's engine and return its record. Raises RefusedError, and then nothing was started."""
    program = machine.which(call["argv"][0], call["path"])
    if program is None:
        raise RefusedError("engine-missing", f"it has no program {call['argv'][0]!r}")
    if fault := machine.port_fault(call["host"], call["port"]):
        raise RefusedError("port", f"port {call['port']}: {fault}")
    order = {name: call[name] for name in _ORDER_FIELDS}
    order["gpus"] = machine.picked(call["gpu_count"], call["gpu_memory_fraction"], _gpus_taken())
    order["created_at_s"], order["boot_id"] = clocks.wall_s(), processes.boot_id()
    order["received_bytes"] = machine.received_bytes()
    _renew(kept, call["fleet"])
    records.write(kept.order(call["token"]), order)
    try:
        supervisor.start(kept, order, [program, *call["argv"][1:]], call["env"], call["path"])
    except OSError as exc:
        with contextlib.suppress(OSError):
            kept.order(call["token"]).unlink()
        raise RefusedError("capacity", f"it starts no more processes: {exc.strerror or exc}") from exc
    return records.read(kept.order(call["token"])) or order


def _list(call: dict[str, Any]) -> dict[str, Any]:
    kept = OwnerRecords(call["owner"])
    if not kept.is_there:
        return {"nodes": []}
    with records.locked():
        _prune(kept)
        nodes = [_shown(kept, order) for order in kept.orders() if order["fleet"] == call["fleet"]]
        if any(node["end"] is None for node in nodes):
            _renew(kept, call["fleet"])
    return {"nodes": nodes, "received_bytes": machine.received_bytes()}


def _describe(call: dict[str, Any]) -> dict[str, Any]:
    kept = OwnerRecords(call["owner"])
    if not kept.is_there:
        return {"node": None}
    with records.locked():
        order = records.read(kept.order(call["token"]))
        return {"node": _shown(kept, order) if order is not None else None}


def _stop(call: dict[str, Any]) -> dict[str, Any]:
    kept, token = OwnerRecords(call["owner"]), call["token"]
    if kept.is_there:
        with records.locked():
            if records.read(kept.order(token)) is not None and not kept.stop(token).exists():
                records.write(kept.stop(token), {"until_s": clocks.boot_s() + max(0.0, call["grace_s"])})
    return {}


def _log(call: dict[str, Any]) -> dict[str, Any]:
    after, most = call["after"], call["bytes_max"]
    try:
        with OwnerRecords(call["owner"]).log(call["fleet"], call["replica"]).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - most) if after is None else after if after <= size else 0
            file.seek(start)
            raw = file.read(most)
    except FileNotFoundError:
        return {"text": "", "end": 0}
    return {"text": raw.decode(errors="replace"), "end": start + len(raw)}


def _look(call: dict[str, Any]) -> dict[str, Any]:
    del call
    return machine.report(_gpus_taken())


def _gpus_taken() -> set[int]:
    """Return the GPUs that living engines have, every owner's: an engine that starts shows in no memory yet."""
    kept = records.base()
    everybody = [OwnerRecords(each.name) for each in kept.iterdir() if each.is_dir()] if kept.is_dir() else []
    return {gpu for own in everybody for order in own.orders() if _settled(own, order) is None for gpu in order["gpus"]}


def _shown(kept: OwnerRecords, order: dict[str, Any]) -> dict[str, Any]:
    end = _settled(kept, order)
    fields = (*_ORDER_FIELDS, "gpus", "created_at_s")
    is_stopping = end is None and kept.stop(order["token"]).exists()
    shown = {name: order[name] for name in fields}
    # Orders of earlier versions lack it.
    return {**shown, "received_bytes": order.get("received_bytes"), "end": end, "is_stopping": is_stopping}


def _settled(kept: OwnerRecords, order: dict[str, Any]) -> dict[str, Any] | None:
    """Return how an order's engine ended, None while it runs; one whose supervisor died is ended here, by its session."""
    is_supervised = order["boot_id"] == processes.boot_id() and processes.is_alive(order.get("supervisor"))
    end = records.read(kept.end(order["token"]))  # after that look: the supervisor writes it last of all
    if end is not None or is_supervised:
        return end
    if order["boot_id"] != processes.boot_id():
        reason = "its machine was restarted"
    else:
        reason = "its supervisor was killed" if order.get("supervisor") else "it was never started"
        if order.get("engine"):
            processes.signal_session(int(order["engine"][0]), signal.SIGKILL)
    end = supervisor.ending(kept, order, reason)
    records.write(kept.end(order["token"]), end)
    return end


def _renew(kept: OwnerRecords, fleet: str) -> None:
    records.write(kept.renewal(fleet), {"at_s": clocks.boot_s()})


def _prune(kept: OwnerRecords) -> None:
    """Forget what ended long ago."""
    now_s = clocks.wall_s()
    for order in kept.orders():
        token, end = order["token"], records.read(kept.end(order["token"]))
        if end is not None and now_s - end["at_s"] > _KEPT_S:
            for path in (kept.stop(token), kept.order(token), kept.end(token)):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
    used = {kept.log(order["fleet"], order["replica"]).name for order in kept.orders()}
    for path in kept.directory.glob("*.log*"):
        if path.name not in used and now_s - path.stat().st_mtime > _LOG_KEPT_S:
            path.unlink()


_CALLS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "create": _create,
    "list": _list,
    "describe": _describe,
    "stop": _stop,
    "log": _log,
    "look": _look,
}
