"""The emulator's command line, as the plan and the lane give it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fleetctl import codec
from fleetctl.engine_kit.arguments import Options, command_line
from fleetctl.model.node import LEADER_HOST, NODE_RANK

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import EmulatorSpec


def arguments(  # noqa: PLR0913  # they are what a replica's command line is made of
    plan: Plan,
    lane_plan: LanePlan,
    emulator: EmulatorSpec,
    *,
    queue_limit: int | None,
    stream_interval: int | None,
    host: str,
    port: int,
) -> tuple[str, ...]:
    """Return `python -m fleetctl_emulator ...` with these settings, listening on host:port.

    `stream_interval` is the profile's own: where the plan decides, an emulated token is still an event, as in the simulator.
    """
    return command_line(
        (sys.executable, "-m", "fleetctl_emulator"),
        _settings(plan, lane_plan)
        | _group("0", lane_plan)
        | _behaviour(emulator, queue_limit)
        | {"--stream-interval": stream_interval, "--host": host, "--port": port},
        lane_plan.launch.extra_args,
    )


def member_arguments(plan: Plan, lane_plan: LanePlan, emulator: EmulatorSpec) -> tuple[str, ...]:
    """Return the command of a replica's further machines: they join the leader, and have no server of their own."""
    return command_line(
        (sys.executable, "-m", "fleetctl_emulator"),
        _settings(plan, lane_plan) | _group(NODE_RANK, lane_plan) | _behaviour(emulator, None),
        lane_plan.launch.extra_args,
    )


def _group(rank: str, lane_plan: LanePlan) -> Options:
    machines = lane_plan.launch.pipeline_parallel
    return {"--nnodes": machines, "--node-rank": rank, "--leader-host": LEADER_HOST} if machines > 1 else {}


def _settings(plan: Plan, lane_plan: LanePlan) -> Options:
    settings = lane_plan.launch
    card, gpu = plan.card_of(lane_plan), lane_plan.gpu_spec or plan.gpu_spec
    return {
        # The emulator times a model by its shape, so it wants the name the shape is known by, not a directory.
        "--model": card.id if card else settings.model,
        # With the very figures of the plan at hand it need not look anything up, nor can it find other ones.
        "--model-card": codec.encode(card).decode() if card else None,
        "--served-model-name": settings.served_name,
        "--gpu": lane_plan.gpu,
        "--gpu-spec": codec.encode(gpu).decode() if gpu else None,
        "--tensor-parallel": settings.tensor_parallel,
        "--pipeline-parallel": settings.pipeline_parallel_local if settings.pipeline_parallel_local > 1 else None,
        "--quantization": settings.quantization.value,
        "--kv-cache-dtype": settings.kv_cache.value if settings.kv_cache else None,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": max(settings.max_num_batched_tokens, settings.max_num_seqs),
        "--max-model-len": settings.max_model_len,
        "--gpu-memory-utilization": settings.gpu_memory_utilization,
        "--priority-scheduling": settings.priority_scheduling,
        "--no-prefix-caching": not settings.prefix_caching,
        "--tool-call-parser": settings.tool_call_parser or None,
        "--lora-modules": tuple(f"{name}={where}" for name, where in settings.adapters.items()),
        "--shutdown-timeout-s": settings.shutdown_timeout_s,
    }


def _behaviour(emulator: EmulatorSpec, queue_limit: int | None) -> Options:
    return {
        "--flavour": emulator.flavour,
        "--engine-version": emulator.version or None,
        "--seed": emulator.seed,
        "--startup-s": emulator.startup_s,
        "--speed": emulator.speed,
        "--max-queued-requests": queue_limit,
    }
