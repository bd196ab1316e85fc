"""An answer under the server's bounds: which of them ended it, and its end where its replica was not done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.gateway import wire
from fleetctl.gateway.answer import ReceivedAnswer
from fleetctl.gateway.assembly import AnswerAssembly
from fleetctl.gateway.early_end import FINISH_REASON, ChoicesRelay, bound_of, last_events
from fleetctl.gateway.loop_watch import note_loop, watch_of
from fleetctl.gateway.stream_fault import truncated
from fleetctl.gateway.usage import Usage

if TYPE_CHECKING:
    from fleetctl.gateway.requests import Request
    from fleetctl.model.generation import BoundReason

CHAT_PATH = b"/v1/chat/completions"
_LENGTH = b"max_tokens="


class BoundedAnswer(ReceivedAnswer):
    """Adds to the way back what the server's bounds ask for; an answer without any passes by."""

    __slots__ = ("_assembly", "_first_body", "_is_assembled", "_received", "_tracks_choices")

    _received: Request
    _first_body: bytes
    _assembly: AnswerAssembly | None
    _is_assembled: bool  # its client asked for a whole answer, and its replicas are asked for a stream
    _tracks_choices: bool  # a clock may end it while some of several choices have ended

    @property
    def _is_chat(self) -> bool:
        return self._received.path == CHAT_PATH

    # Receiver.

    def head(self, status: int, headers: list[wire.Header]) -> None:
        """Take the head."""
        super().head(status, headers)
        if not (self._is_assembled or self._tracks_choices) or self.request.is_committed:
            return
        self._assembly = None
        if self._relay is None:
            return
        if self._tracks_choices:
            self._relay = ChoicesRelay(self._limits, watch_of(self.request, self._loops))
            return
        self._relay = None
        self._assembly = AnswerAssembly(is_chat=self._is_chat, bytes_max=self._text_bytes_max)

    def _plain_body(self, data: bytes) -> None:
        """Put an answer together, or hold it back as it came."""
        assembly = self._assembly
        if assembly is None or self._response.status != 200:
            super()._plain_body(data)
            return
        new = assembly.feed(data)
        if new and self.request.awaits_token:
            self._dispatcher.first_token(self.request, self.request.heard_s)
        if assembly.fault is not None:
            self._faulted(assembly.fault)

    # How it ends.

    def _complete_pieces(self) -> None:
        relay = self._relay
        if self.request.bounds is not None and relay is not None:
            self._note_bound(relay.ending or relay.last)
        super()._complete_pieces()

    def _complete_whole(self, status: int) -> None:
        if self._assembly is not None and status == 200:
            self._complete_assembled(self._assembly)
            return
        if self.request.bounds is not None and status == 200:
            self._note_bound(self._response.held())
        super()._complete_whole(status)

    def _complete_assembled(self, assembly: AnswerAssembly) -> None:
        if not assembly.is_finished:
            self._faulted(truncated())
            return
        body = assembly.body(self.request.prompt.prompt_tokens)
        self._note_bound(body)
        self._write_assembled(assembly, body)
        if self._loops is not None:
            note_loop(self.request, body)
        self._answered()

    def end_early(self, reason: BoundReason) -> None:
        """Write the end of an answer that its replica was not done with."""
        assembly, prompt_tokens = self._assembly, self.request.prompt.prompt_tokens
        if assembly is not None:
            ends = {"finish_reason": FINISH_REASON, "stop_reason": reason.value}
            body = assembly.body(prompt_tokens, **ends)
            most_s = self.request.bounds.max_duration_s if self.request.bounds is not None else None
            note = b"%b=%gs" % (reason.value.encode(), most_s) if most_s is not None else reason.value.encode()
            self._response.limited = b", ".join(filter(None, (self._response.limited, note)))
            self._write_assembled(assembly, body)
        elif self._relay is not None:
            relay, body = self._relay, self._first_body
            self._response.end(last_events(relay, body, reason, is_chat=self._is_chat, prompt_tokens=prompt_tokens))
            counted, tokens = relay.counts()
            self._note_usage(Usage(counted, tokens) if counted is not None else None)

    def _write_assembled(self, assembly: AnswerAssembly, body: bytes) -> None:
        response = self._response
        response.headers = [each for each in response.headers if each[0] != b"content-type"] + [wire.JSON]
        response.whole(body)
        self._note_usage(assembly.usage(self.request.prompt.prompt_tokens))

    def _note_bound(self, answer: bytes) -> None:
        request = self.request
        if request.bounds is not None:
            # What a ladder step cuts further is that step's doing.
            length_bound = None if _LENGTH in self._response.degraded else self._received.length_bound
            request.bounded_by = bound_of(answer, request.bounds, length_bound)
