"""Which lane a request enters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleetctl.model.gateway import RouteLane
    from fleetctl.model.profile import LaneMatch


def choose_lane(
    lanes: Sequence[RouteLane],
    *,
    header: str | None,
    batch_hint: bool,
    uncached_prompt_tokens: Callable[[str], int],
    stream: bool,
) -> RouteLane | Refusal:
    """Return the lane a request enters, or why none takes it.

    A header decides alone. Else the batch hint enters the first batch lane, if there is one. Else the first lane, in
    the profile's order, whose match accepts it. `uncached_prompt_tokens` answers per lane, because a prompt cached in
    one lane is work in another. Batch lanes take unhinted requests only where every lane is one.
    """
    if header is not None:
        return next((lane for lane in lanes if lane.name == header), Refusal.UNKNOWN_LANE)
    if batch_hint:
        for lane in lanes:
            if lane.match.batch:
                return lane
    unhinted = [lane for lane in lanes if not lane.match.batch] or lanes
    for lane in unhinted:
        if _accepts(lane.match, lane.name, uncached_prompt_tokens, stream=stream):
            return lane
    return Refusal.NO_LANE


def _accepts(match: LaneMatch, name: str, uncached_prompt_tokens: Callable[[str], int], *, stream: bool) -> bool:
    if match.stream is not None and match.stream is not stream:
        return False
    low, high = match.uncached_prompt_tokens_min, match.uncached_prompt_tokens_max
    if low is None and high is None:
        return True
    tokens = uncached_prompt_tokens(name)
    return (low is None or tokens >= low) and (high is None or tokens < high)
