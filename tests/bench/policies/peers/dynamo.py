"""NVIDIA Dynamo's SLA planner: a forecast of the load every 180 s, a correction by one every 5 s.

docs.nvidia.com/dynamo, planner: prefill rps of a replica = 1 / f_p(isl), decode B* = max B with f_d(B, B (isl + osl / 2)) <=
ITL and rps = B* / (osl f_d); n = max(ceil(rps / rps1), 1), which is the floor of the load loop: one more if ALL workers'
estimated TTFT or ITL is over the SLA, one less if for all, after load * N / (N - 1), the queue's part is under .8 (SLA - own)
and the ITL under .8 SLA. f_p and f_d come of a profile taken before deployment: here of the performance model that the
simulated engines run by, so they are exact.
Simplified: the constant predictor (the next interval is as the last); engines are aggregated, so a request costs its prefill
and its share of decode steps together; bounds are the lane's, not 8 GPUs; a lane without a TTFT promise gets the forecast alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.perf.step import StepBatch, chunk_context_tokens
from tests.bench.policies.peers.signals import ReplicaProfile

if TYPE_CHECKING:
    from tests.bench.policies.peers.policy import ScalingRule
    from tests.bench.policies.peers.signals import LaneSignals

_KEPT_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    """Prefill and decode times of one replica, as the profiler's tables give them."""

    profile: ReplicaProfile

    def prefill_s(self, prompt_tokens: float) -> float:
        """Return f_p summed over a prompt's chunks."""
        model, chunk = self.profile.instance.model, self.profile.instance.limits.max_num_batched_tokens
        done, total_s = 0.0, 0.0
        while done < prompt_tokens:
            tokens = min(chunk, prompt_tokens - done)
            total_s += model.step_s(StepBatch(tokens, chunk_context_tokens(done, tokens), 0, 0))
            done += tokens
        return total_s

    def itl_s(self, batch: float, context_tokens: float) -> float:
        """Return f_d of a batch with this context each."""
        return self.profile.instance.model.decode_step_s(batch, context_tokens)

    def batch_max(self, context_tokens: float) -> int:
        """Return B*: the largest batch inside the ITL, the replica's KV cache and its limit on sequences."""
        limits = self.profile.instance.limits
        most = max(1, min(limits.max_num_seqs, int(self.profile.kv_tokens / max(1.0, context_tokens))))
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.itl_s(middle, context_tokens) <= self.profile.itl_limit_s
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def rps(self, prompt_tokens: float, output_tokens: float) -> float:
        """Return what one replica serves a second: the prefill of a request and its share of decode steps."""
        context = prompt_tokens + output_tokens / 2.0
        batch = self.batch_max(context)
        return 1.0 / (self.prefill_s(prompt_tokens) + output_tokens * self.itl_s(batch, context) / batch)


@dataclass(slots=True)
class SlaPlanner:
    """Both loops of one lane."""

    engine: MeasuredEngine
    forecast_s: float = 180.0
    correct_s: float = 5.0
    _forecast_at_s: float = -math.inf
    _correct_at_s: float = 0.0
    _floor: int = 1

    def __call__(self, signals: LaneSignals) -> int:
        profile = self.engine.profile
        prompt = signals.prompt_tokens or profile.prompt_tokens
        output = signals.output_tokens or profile.output_tokens
        if signals.now_s - self._forecast_at_s >= self.forecast_s and signals.now_s >= self.correct_s:
            self._forecast_at_s = signals.now_s
            self._floor = max(1, math.ceil(signals.rps / self.engine.rps(prompt, output) - 1e-9))
        wanted = signals.replicas
        if signals.now_s - self._correct_at_s >= self.correct_s:
            self._correct_at_s = signals.now_s
            wanted += self._correction(signals, prompt, output)
        return max(self._floor, wanted)

    def _correction(self, signals: LaneSignals, prompt: float, output: float) -> int:
        """Return +1, 0 or -1; nothing is corrected while replicas are on their way."""
        profile, count = self.engine.profile, len(signals.running)
        if not count or signals.ready < signals.replicas or math.isinf(profile.ttft_limit_s):
            return 0
        own_s, context = self.engine.prefill_s(prompt), prompt + output / 2.0
        held = signals.queued / count
        queues_s = [(waiting + held) * own_s for waiting in signals.waiting]
        gaps_s = [self.engine.itl_s(max(1, running), context) for running in signals.running]
        if all(queue_s + own_s > profile.ttft_limit_s for queue_s in queues_s):
            return 1
        if all(gap_s > profile.itl_limit_s for gap_s in gaps_s):
            return 1
        if count < 2:
            return 0
        grown = count / (count - 1)
        is_calm = all(queue_s * grown < _KEPT_SHARE * (profile.ttft_limit_s - own_s) for queue_s in queues_s)
        gaps_s = [self.engine.itl_s(max(1, running) * grown, context) for running in signals.running]
        return -1 if is_calm and all(gap_s < _KEPT_SHARE * profile.itl_limit_s for gap_s in gaps_s) else 0


def dynamo(profile: ReplicaProfile) -> ScalingRule:
    """Return the planner at its defaults."""
    return SlaPlanner(MeasuredEngine(profile))
