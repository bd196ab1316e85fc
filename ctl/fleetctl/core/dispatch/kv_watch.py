"""Takes stock of what requests hold of their replicas' KV caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.dispatch.replica import DispatchReplica
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.routing.kv_cache import KvShare

_EVERY_S: Final = 1.0
# An answer that is already longer than the mean is expected to go on for this share of what it has come to.
_LONGER_BY: Final = 0.25


class KvWatch:
    """Looks once a second."""

    __slots__ = ("_looked_s",)

    def __init__(self) -> None:
        self._looked_s = 0.0

    def check(self, active: Iterable[ActiveRequest], replicas: Iterable[DispatchReplica], now_s: float) -> None:
        """Count anew what every replica's requests hold, if it is time to look."""
        if now_s - self._looked_s < _EVERY_S:
            return
        self._looked_s = now_s
        found: dict[DispatchReplica, list[KvShare]] = {replica: [] for replica in replicas}
        for request in active:
            replica, share = request.replica, request.kv_share
            if replica is None or share is None or replica not in found:
                continue
            generated = request.stopwatch.token_count if request.is_stream else _made(request, replica, now_s)
            share.held = request.prompt.uncached(replica.route.id) + generated
            share.to_come = to_come(request, generated)
            found[replica].append(share)
        for replica, shares in found.items():
            candidate = replica.candidate
            candidate.kv.look(shares, now_s, computing_tokens=candidate.prefill_tokens)


def to_come(request: ActiveRequest, generated: float) -> float:
    """Return how many tokens an answer is expected to go on for: to its lane's mean length, and no further than was asked."""
    output_most, mean = request.tokens.output, request.lane.answers.mean_tokens
    if not generated:  # asked for every request
        return output_most if 0 < output_most < mean else mean
    # No `max` and `min`: every second it is asked for all that run, and a call costs more than the rest.
    expected, longer = mean - generated, _LONGER_BY * generated
    if longer > expected:  # noqa: PLR1730
        expected = longer
    if output_most and output_most - generated < expected:
        expected = output_most - generated
    return expected if expected > 1.0 else 1.0  # noqa: FURB136


def _made(request: ActiveRequest, replica: DispatchReplica, now_s: float) -> float:
    """Return the tokens so far of an answer that comes whole: nobody hears them, so by the others' pace."""
    made = (now_s - request.dispatched_s) / replica.candidate.kv.s_per_token
    return min(made, request.tokens.output or request.lane.answers.mean_tokens)
