"""The report that a lane's tokens leave in other chunks than before."""

from __future__ import annotations

from typing import ClassVar

from fleetctl.model.action import EntryKind, LaneAction


class ReportStreamUnit(LaneAction, frozen=True, kw_only=True, tag="stream-unit"):
    """Write that a lane's tokens leave in larger or smaller chunks than before, which no latency and no rate shows."""

    kind: ClassVar[EntryKind] = EntryKind.STREAM
    order: ClassVar[int] = 97

    noted: dict[str, float | str]

    @property
    def figures(self) -> dict[str, float | str]:
        """Tokens per chunk and the gaps between chunks, before and now; which engine; since when."""
        return self.noted
