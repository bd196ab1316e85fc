"""A floor under the replicas of one kind that a lane takes, at a thousandth of what it takes to size them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fleetctl.core.perf.step import StepBatch
from fleetctl.core.plan.checks import KNEE_SHARE_MAX
from fleetctl.core.plan.replica import ReplicaModel, running_most
from fleetctl.core.plan.sizing import CHUNKS, GPU_MEMORY_UTILIZATION, KV_FREE, SEQS_MAX

if TYPE_CHECKING:
    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec

# Of the prompt tokens that come in a mean iteration, those that the model computes in it at least. Chunks come by Poisson: of
# u chunks' worth an iteration, at most one where prompts do not pile up, 1 - exp(-u) >= (1 - 1/e) u find one of their own.
_PROMPT_SHARE_MIN: Final = 1.0 - math.exp(-1.0)
_SLACK: Final = 0.999  # a steady state is only so exact


def fewest_conceivable(lane: LaneSpec, instance: Instance, demand: LaneDemand) -> float:
    """Return a number of replicas below which no chunk and batch size carries a lane's load; infinity where none fits.

    Of an iteration only what is convex in its tokens and grows no faster than they do is counted, so that no mix of iterations
    takes less than the mean one, and the fullest batch carries most: no prompt in pieces, no window, no expert's weights.
    """
    step = replace(instance.step, mixed_s=0.0, window_flop_s=0.0, window_read_s=0.0, expert_miss=1.0)
    probe = ReplicaModel(step=step, demand=demand, batched_tokens_max=1, seqs_max=1)
    seqs = _seqs_most(lane, instance, probe)
    if seqs < 1:
        return math.inf
    running, answer = running_most(seqs), demand.output.mean
    prompt = running / answer * probe.work_mean * _PROMPT_SHARE_MIN
    context = running * probe.resident_tokens
    mean_s = step.step_s(StepBatch(prompt, prompt * probe.attended_per_token, running, context))
    mean_s -= step.head_flop_s + step.sequence_s  # of the token that a prompt ends with: not every iteration has one
    chunk = max(CHUNKS[0], lane.launch.max_num_batched_tokens or 0, lane.launch.max_num_seqs or 0)
    full_s = step.step_s(StepBatch(chunk, chunk * probe.attended_per_token, 0, 0))
    rps = min(running / (answer * mean_s), chunk / (probe.work_mean * full_s))
    return _SLACK * demand.rps / (KNEE_SHARE_MAX * rps * instance.ranks)


def _seqs_most(lane: LaneSpec, instance: Instance, probe: ReplicaModel) -> int:
    """Return the most sequences that a batch may hold, in the chunk that leaves most to the KV cache."""
    pinned = lane.launch
    seqs = pinned.max_num_seqs or SEQS_MAX
    kv_tokens = instance.kv_tokens(
        gpu_memory_utilization=pinned.gpu_memory_utilization or GPU_MEMORY_UTILIZATION,
        max_num_batched_tokens=pinned.max_num_batched_tokens or CHUNKS[-1],
        max_num_seqs=pinned.max_num_seqs or 0,
    )
    if instance.reserves_context:  # how many contexts fit is the length's, which may be pinned
        return seqs if kv_tokens else 0
    return min(seqs, math.floor(kv_tokens * (1.0 - KV_FREE) / instance.sequence_kv.held(probe.resident_tokens)))
