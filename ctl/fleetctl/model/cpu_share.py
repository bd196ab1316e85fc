"""A machine without GPUs, shared out: what an engine says of itself there, and what an order says of a replica."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """How an engine runs on the CPU. What only the machine knows reaches it by variables: a flag would hold for GPUs too."""

    process_bytes: int  # resident beside the weights and the KV cache
    kv_space_env: str = ""  # the variable that sizes its KV cache, in whole GiB; empty: its settings do
    kv_space_flags: frozenset[str] = frozenset()  # that size it as well; with one of them the variable is left alone
    threads_env: str = ""  # the variable that says how many threads compute; empty: as many as it may use CPUs
    threads_flags: frozenset[str] = frozenset()  # that say it as well


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShare:
    """What a replica is to have of a machine that has no GPUs; machines that have some look past it."""

    parts: int  # replicas that the plan shares the machine out to
    fixed_bytes: int  # its weights and its process
    kv_bytes_min: int  # of KV cache: for the longest request, or for all of its slots where it reserves them
    fixed_bytes_all: int = 0  # of all parts together, which may load unlike models; 0: as many times its own
    surge: int = 0  # replicas beside the parts, while a rollout replaces some
    surge_fixed_bytes: int = 0  # of all those together
    kv_space_env: str = ""  # as in CpuUse; empty where the profile sizes the cache
    threads_env: str = ""
