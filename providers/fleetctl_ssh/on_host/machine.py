"""What there is on this machine: its GPUs, its disk, its programs, and what would end a process behind our back."""

from __future__ import annotations

import csv
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from fleetctl_ssh.on_host.records import RefusedError, base

_GPU_FIELDS = "index,uuid,name,memory.total,memory.free,mig.mode.current"
_DEADLINE_S = 20.0  # without persistence mode the driver initialises every card first
_MIB = 2**20
_FREE_LEAST = 0.5  # of its memory, for a GPU to be on offer


def gpus() -> tuple[list[dict[str, Any]], str]:
    """Return what nvidia-smi shows, and what keeps it from showing more."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], ""
    code, text, error = _output([program, f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits"], _DEADLINE_S)
    if code:
        return [], error
    rows = [[word.strip() for word in row] for row in csv.reader(text.splitlines())]
    rows = [row for row in rows if len(row) == len(_GPU_FIELDS.split(","))]
    divided = [row[0] for row in rows if row[-1] == "Enabled"]
    # "[N/A]" of memory that is the processor's too, "[Unknown Error]" of a card that has fallen off: nothing says what fits.
    unsized = [row[0] for row in rows if not (row[3].isdigit() and row[4].isdigit())]
    found = [
        {
            "index": int(row[0]),
            "uuid": row[1],
            "name": row[2],
            "memory_bytes": int(row[3]) * _MIB,
            "free_bytes": int(row[4]) * _MIB,
        }
        for row in rows
        if row[0] not in {*divided, *unsized}
    ]
    problems = [f"GPU {', '.join(divided)}: divided by MIG, whose instances are not used"] if divided else []
    problems += [f"GPU {', '.join(unsized)}: its memory is not said, so it is not used"] if unsized else []
    return found, "; ".join(problems)


def picked(count: int, memory_fraction: float, taken: set[int]) -> list[int]:
    """Return the GPUs a new replica gets, by index; none on a machine without. Raises RefusedError."""
    if not count:
        return []
    there, problem = gpus()
    if problem and not there:
        raise RefusedError("capacity", f"nvidia-smi: {problem}")
    roomy = [gpu for gpu in there if gpu["free_bytes"] >= memory_fraction * gpu["memory_bytes"]]
    free = [gpu["index"] for gpu in roomy if gpu["index"] not in taken]
    if there and len(free) < count:
        raise RefusedError("capacity", f"{count} GPUs are needed, and {len(free)} of its {len(there)} are free")
    return free[:count]


def received_bytes() -> int:
    """Return what this machine has got over its networks since it booted; its containers' exchange with it is none."""
    try:
        rows = [line.split(":", 1) for line in Path("/proc/net/dev").read_text().splitlines() if ":" in line]
    except OSError:
        return 0
    own = ("lo", "docker", "veth", "br-")
    return sum(int(row[1].split()[0]) for row in rows if not row[0].strip().startswith(own))


def port_fault(host: str, port: int) -> str:
    """Return why nothing can listen there; empty: something can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            return exc.strerror or str(exc)
    return ""


def which(program: str, path: str) -> str | None:
    """Return where a program is, in the directories of the inventory first."""
    return shutil.which(program, path=search_path(path))


def search_path(path: str) -> str:
    """Return PATH with the directories of the inventory before it."""
    inherited = os.environ.get("PATH", os.defpath)
    named = [str(Path(part).expanduser()) for part in path.split(":") if part]
    return ":".join([*named, inherited])


def report(taken: set[int]) -> dict[str, Any]:
    """Return what offers and a preflight look at; `taken` are the GPUs that engines of ours have."""
    found, problem = gpus()
    for gpu in found:
        # What fills it while no engine of ours has it is somebody else's, and no engine of half its memory would start there.
        gpu["is_others"] = gpu["index"] not in taken and gpu["free_bytes"] < gpu["memory_bytes"] * _FREE_LEAST
    place = next(parent for parent in base().parents if parent.is_dir())
    return {
        "gpus": found,
        "problem": problem,
        "directory": str(place),
        "disk_free_bytes": shutil.disk_usage(str(place)).free,
        "is_writable": os.access(str(place), os.W_OK),
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "ends_with_login": _ends_with_login(),
    }


def _ends_with_login() -> bool:
    """Whether systemd ends this user's processes with the last login: a supervisor would not outlive the call that starts it."""
    if shutil.which("loginctl") is None or shutil.which("busctl") is None:
        return False
    login = "org.freedesktop.login1"
    kills = _output(
        ["busctl", "get-property", login, "/org/freedesktop/login1", f"{login}.Manager", "KillUserProcesses"], 5.0
    )
    lingers = _output(["loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value"], 5.0)
    return kills[1].strip() == "b true" and lingers[1].strip() != "yes"


def _output(command: list[str], deadline_s: float) -> tuple[int, str, str]:
    """Return a program's exit status, its output, and what it said where it failed."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=deadline_s, check=False)  # noqa: S603  # fixed words
    except (OSError, subprocess.TimeoutExpired) as exc:
        return 1, "", str(exc)
    text = done.stdout.decode(errors="replace")
    lines = (done.stderr.decode(errors="replace") or text).strip().splitlines()
    return done.returncode, text, f"exit {done.returncode}: {lines[-1] if lines else 'no output'}"
