"""The gaps between tokens of one lane's streams, counted in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.core.slo.accounts import LaneAccounts
    from fleetctl.sim.segment import Segment


class GapCounter:
    """One engine's gaps in the streams of one lane. `over` grows with every step that took longer than the limit."""

    __slots__ = ("_accounts", "decoding", "over")

    def __init__(self, accounts: LaneAccounts) -> None:
        self._accounts = accounts
        self.decoding = 0  # streams that get a token each step
        self.over = 0

    def count(self, now_s: float, segment: Segment, steps: int) -> None:
        """Count the first `steps` of a segment, for every stream that decodes."""
        accounts, streams = self._accounts, self.decoding
        if segment.duration_s(steps - 1) > accounts.gap_limit_s:
            self.over += segment.over(accounts.gap_limit_s, steps)
        for gap_s, alike in segment.gaps(steps):
            accounts.alike_gaps(now_s, gap_s, alike * streams)

    def count_one(self, now_s: float, gap_s: float) -> bool:
        """Count one gap of one stream; return whether it is over the limit."""
        self._accounts.alike_gaps(now_s, gap_s, 1)
        return self.is_over(gap_s)

    def is_over(self, gap_s: float) -> bool:
        """Return whether a gap is longer than the lane promises."""
        return gap_s > self._accounts.gap_limit_s
