"""What the engines say of themselves: token rates from their counters, and a lane's engines taken together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.observation import EngineSignals, ObservedReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEngineLoad:
    """The engines of a lane's replicas in rotation. A figure is only meaningful while `validity` is OK.

    It is OK when every one of them has figures fit to decide on; else the worst of theirs.
    """

    validity: Validity = Validity.NONE
    running: int = 0  # sequences, of all
    waiting: int = 0
    kv_usage_max: float | None = 0.0  # of the fullest, 0-1; None: one at least never says
    kv_usage_total: float | None = 0.0  # of all together, in caches; None: as above
    prefill_tokens_per_s: float | None = None  # of all; None: not every engine has been read twice
    decode_tokens_per_s: float | None = None


def with_rates(before: EngineSignals, after: EngineSignals) -> EngineSignals:
    """Return `after` with its token rates since `before`, and for how long it has stood still.

    Neither is known after a counter reset or an unfit reading.
    """
    if Validity.OK is not before.validity or Validity.OK is not after.validity or before.at is None or after.at is None:
        return after
    seconds = (after.at - before.at).total_seconds()
    prompt, output = after.prompt_tokens - before.prompt_tokens, after.output_tokens - before.output_tokens
    if seconds <= 0 or prompt < 0 or output < 0:
        return after
    moves = prompt or output or after.steps != before.steps or after.kv_usage != before.kv_usage
    stands = before.running > 0 and after.running > 0 and not moves
    # Counters that never counted prove nothing.
    counts = after.prompt_tokens > 0 or after.output_tokens > 0
    return msgspec.structs.replace(
        after,
        prefill_tokens_per_s=prompt / seconds,
        decode_tokens_per_s=output / seconds,
        stalled_s=before.stalled_s + seconds if stands and counts else 0.0,
    )


def engine_load(replicas: Iterable[ObservedReplica]) -> LaneEngineLoad:
    """Return what the engines in rotation carry together."""
    ready = ReplicaState.READY  # an enum's members are slow to look up
    signals = [replica.engine for replica in replicas if replica.record.state is ready]
    validities = {each.validity for each in signals}
    validity = (
        max(validities, key=list(Validity).index) if len(validities) > 1 else next(iter(validities), Validity.NONE)
    )
    if validity is not Validity.OK:
        return LaneEngineLoad(validity=validity)
    usages = [each.kv_usage for each in signals if each.kv_usage is not None]
    return LaneEngineLoad(
        validity=validity,
        running=sum([each.running for each in signals]),
        waiting=sum([each.waiting for each in signals]),
        kv_usage_max=max(usages) if len(usages) == len(signals) else None,
        kv_usage_total=sum(usages) if len(usages) == len(signals) else None,
        prefill_tokens_per_s=_sum([each.prefill_tokens_per_s for each in signals]),
        decode_tokens_per_s=_sum([each.decode_tokens_per_s for each in signals]),
    )


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None
