"""Finds out of an engine that still runs whether it will ever be ready."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.engine_kit.last_words import cut, last_line, last_words
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.engine_kit.last_words import LastWords
    from fleetctl.model.node import NodeProcess

_SIGNAL = re.compile(r"signal (\d+)(, by the OOM killer)?")
_OOM = "OOMKilled"  # as container runtimes say that a container ran out of the machine's memory
# Asked to end, by its parent as a rule: not what a crash or the kernel's out-of-memory killer looks like.
_REQUESTS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
# Of the machine, not of its GPUs. Where a container is given no limit a namespace's LimitRange is what usually sets one.
_OUT_OF_MEMORY = (
    "the memory of the machine that it may use ran out, not its GPUs'; raise its container's limit, or the LimitRange "
    "that sets it; without a limit have fewer on that machine, or take one with more memory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailures:
    """What no start of an engine survives, as regular expressions."""

    lines: str  # of its log: written once a part that it cannot do without has failed
    processes: str = r"(?!)"  # beginnings of the names of processes that live as long as it does; given none, no name


def start_fault(
    log_tail: str,
    ended: Sequence[NodeProcess],
    failures: StartFailures,
    *,
    patterns: Sequence[LastWords],
    echoes: str = "",
) -> EngineFault | None:
    """Return why an engine that still runs will never be ready; None: it may be.

    `ended` are those of its processes that are no more. One without a vital name counts only where a signal killed it.
    """
    lost = [each for each in ended if re.match(failures.processes, each.name)]
    killed = [each for each in ended if was_killed(each.exit_reason)]
    has_failed = re.search(failures.lines, log_tail, re.MULTILINE) is not None
    if not (lost or killed or has_failed):
        return None
    fault = last_words(log_tail, patterns, echoes=echoes)
    if fault is not None and fault.kind is not EngineFaultKind.UNKNOWN:
        return fault
    if killed:
        return killed_by(killed[0].exit_reason, of=killed[0].name)
    if not lost:
        return fault
    names = ", ".join(f"{each.name} ({each.exit_reason})" if each.exit_reason else each.name for each in lost)
    last = f"; the last line: {fault.line}" if fault is not None else ""
    return EngineFault(kind=EngineFaultKind.UNKNOWN, line=cut(f"no longer there: {names}{last}"))


def was_killed(exit_reason: str) -> bool:
    """Whether a process that ended so was killed by a signal, rather than asked to end by one."""
    found = _SIGNAL.fullmatch(exit_reason)
    return found is not None and int(found[1]) not in _REQUESTS


def had_no_word(exit_reason: str) -> bool:
    """Whether a process ended so by what no process notices: nothing that it wrote before is why."""
    found = _SIGNAL.fullmatch(exit_reason)
    return _OOM in exit_reason or (found is not None and int(found[1]) == signal.SIGKILL)


def killed_by(exit_reason: str, *, of: str = "", log_tail: str = "") -> EngineFault:
    """Return the fault of a process that a signal killed; the last line it wrote is a hint at what it was doing.

    Where memory is known to have run out that line would only lead away from it.
    """
    if _OOM in exit_reason:
        return EngineFault(kind=EngineFaultKind.MEMORY, line=_OUT_OF_MEMORY)
    found = _SIGNAL.fullmatch(exit_reason)
    number = int(found[1]) if found else 0
    name = signal.Signals(number).name if number in set(signal.Signals) else exit_reason
    whose = f"its process {of}" if of else "its process"
    hint = "; by the system where memory is short, else by hand" if number == signal.SIGKILL else ""
    if found and found[2]:
        hint = "; by the kernel's OOM killer: memory ran out"
    last = last_line(log_tail)
    how = (
        f"{whose} was killed by signal {number} ({name}){hint}"
        if found
        else f"{whose} was killed by {exit_reason} ({name})"
    )
    return EngineFault(kind=EngineFaultKind.KILLED, line=cut(f"{how}; the last line it wrote: {last}" if last else how))
