"""What a stream's events say besides their text: faults, why the answer ended, how many tokens it took."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.gateway import wire
from fleetctl.gateway.stream_fault import StreamFault, find_fault, too_long, truncated
from fleetctl.gateway.transcript import gives_finish
from fleetctl.gateway.usage import Usage, read_usage, usage_event, without_usage

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.usage import ShownUsage

# `find` comes before a pattern that needs its letters, and stands for `in`, which first tries bytes as a number.
# A non-empty text of a delta. Inside JSON strings quotes are escaped, so no answer about these keys matches.
CONTENT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)"\s*:\s*"(?!")')
DONE = re.compile(rb"^data:\s*\[DONE\]\s*", re.MULTILINE)


class EventReader:
    """Takes events apart as far as honesty needs, and knows how the stream stands."""

    __slots__ = (
        "_empty", "_limits", "_marker", "_pending", "_shown", "_stripped_end", "ending", "fault", "is_done", "is_usage_passed", "last", "usage",
    )  # fmt: skip

    def __init__(self, limits: GatewayLimits, shown: ShownUsage) -> None:
        self._limits, self._shown = limits, shown
        # How this engine spells the key before a token; what waits for the end of its event; what was fed last.
        self._marker = self._empty = self._pending = self.last = b""
        self.fault: StreamFault | None = None
        # Passed on: events with a finish_reason; [DONE]; the event that ends a stream with its usage.
        self.ending, self.is_done, self.is_usage_passed = b"", False, False
        self.usage: Usage | None = None
        self._stripped_end = b""  # an event with a finish_reason whose usage the client is to see after it

    @property
    def is_finished(self) -> bool:
        """Whether a finish_reason was passed on; it may have come with the last content."""
        return bool(self.ending) or gives_finish(self.last)

    def _cut(self, data: bytes) -> bytes:
        end = wire.last_boundary(data)
        self._pending = data[end:]
        if len(self._pending) > self._limits.event_bytes_max:
            self.fault = too_long()
        return data[:end]

    def _shown_event(self, event: bytes) -> bytes:
        """Return an event as the client asked for it; the last one, with the usage alone, perhaps not at all."""
        if b'"usage"' not in event:
            return self._with_usage(event) if self._stripped_end else event
        if b'"choices":[]' in event or b'"choices": []' in event:
            self.is_usage_passed = self._shown.at_end
            return event if self._shown.at_end else b""
        if self._shown.at_end and gives_finish(event):
            self._stripped_end = event
        return without_usage(event)

    def _with_usage(self, end: bytes) -> bytes:
        """Return the end of a stream with the usage before its [DONE], where the engine told it with the finish_reason."""
        done = DONE.search(end) if self._stripped_end and not self.is_usage_passed else None
        if done is None:
            return end
        self.is_usage_passed = True
        return end[: done.start()] + usage_event(self._stripped_end) + end[done.start() :]

    def _look(self, data: bytes) -> tuple[bytes, int]:
        if (found := find_fault(data)) is not None:
            self.fault, start = found
            data = data[:start]
        if not self.ending:
            self.ending = self.last + data if self.is_finished or gives_finish(data) else b""
        self.usage = read_usage(data) or self.usage
        if data.find(b"[DONE]") >= 0 and (done := DONE.search(data)) is not None:
            if self.ending:
                self.is_done = True
            else:
                # vLLM ends aborted streams so: with [DONE], but without a finish_reason.
                self.fault = self.fault or truncated()
                data = data[: done.start()]
        contents = CONTENT.findall(data)
        if contents:
            self._marker = contents[0][1:]
            self._empty = self._marker + b'"'
        return data, len(contents)
