"""Reads the GPUs of this machine from `nvidia-smi`, where NVML's library cannot be used from here. It knows no MIG instances' memory."""

from __future__ import annotations

import csv
import shutil
import subprocess

from fleetctl_local.gpus import Gpu, GpuReading

_NAME = "nvidia-smi"
_DEADLINE_S = 20.0  # without persistence mode the driver initialises every card first
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.free", "mig.mode.current")
_MIB = 2**20


def read() -> GpuReading:
    """Return what nvidia-smi shows; without one nothing, and what keeps it from answering as the reading's problem."""
    program = shutil.which(_NAME)
    if program is None:
        return GpuReading()
    query = [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)  # noqa: S603  # no part of it is anybody's input
    except (OSError, subprocess.TimeoutExpired) as exc:
        return GpuReading(source=_NAME, problem=str(exc))
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        return GpuReading(source=_NAME, problem=f"exit {done.returncode}: {output[-1] if output else 'no output'}")
    rows = [tuple(word.strip() for word in row) for row in csv.reader(done.stdout.splitlines())]
    gpus = tuple(_gpu(row) for row in rows if len(row) == len(_FIELDS) and row[-1] != "Enabled")
    divided = [row[0] for row in rows if row[-1] == "Enabled"]
    problem = f"GPU {', '.join(divided)}: MIG instances are seen by NVML alone" if divided else ""
    return GpuReading(gpus=gpus, source=_NAME, problem=problem)


def _gpu(row: tuple[str, ...]) -> Gpu:
    index, uuid, name, total, free, _ = row
    return Gpu(uuid=uuid, index=int(index), name=name, memory_bytes=int(total) * _MIB, free_bytes=int(free) * _MIB)
