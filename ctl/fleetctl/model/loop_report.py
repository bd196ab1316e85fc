"""The action that writes of answers that repeat themselves."""

from __future__ import annotations

from typing import ClassVar

from fleetctl.model.action import EntryKind, LaneAction


class ReportLoops(LaneAction, frozen=True, kw_only=True, tag="loops"):
    """Write that answers of a lane repeat themselves; once, however many do, for as long as that goes on."""

    kind: ClassVar[EntryKind] = EntryKind.GATEWAY
    order: ClassVar[int] = 98

    looped: int  # answers, over the window
    finished: int  # requests, over the same
    window_s: float

    @property
    def figures(self) -> dict[str, float | str]:
        """How many, of how many, over how long."""
        return {"looped": self.looped, "finished": self.finished, "window_s": self.window_s}
