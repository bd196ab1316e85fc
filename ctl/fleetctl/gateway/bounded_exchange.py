"""A request under the server's bounds: which of them ended its answer, and its end where its replica was not done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.endings import Ending
from fleetctl.gateway import wire
from fleetctl.gateway.assembly import AnswerAssembly, streamed_body
from fleetctl.gateway.early_end import FINISH_REASON, ChoicesRelay, bound_of
from fleetctl.gateway.exchange import CHAT_PATH, Exchange
from fleetctl.gateway.loop_watch import note_loop, watch_of
from fleetctl.gateway.stream_fault import truncated
from fleetctl.model.generation import BoundReason, GenerationSpec

if TYPE_CHECKING:
    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.measure import MeasuredRequest
    from fleetctl.gateway.requests import Request
    from fleetctl.gateway.traces import EndedRequests
    from fleetctl.gateway.upstreams import Upstreams

_LENGTH = b"max_tokens="


class BoundedExchange(Exchange):
    """An exchange whose answer has bounds; one without any is an `Exchange`, and pays for none of this."""

    __slots__ = ("_assembly", "_bounds", "_is_assembled", "_tracks_choices")

    def __init__(  # as of an exchange
        self,
        dispatcher: Dispatcher,
        upstreams: Upstreams,
        limits: GatewayLimits,
        client: ClientConnection,
        received: Request,
        lane: DispatchLane[ActiveRequest],
    ) -> None:
        super().__init__(dispatcher, upstreams, limits, client, received, lane)
        self._bounds = received.bounds or GenerationSpec()
        self._assembly: AnswerAssembly | None = None
        self._is_assembled = False  # its client wants a whole answer, and its replicas are told to stream
        self._tracks_choices = False  # a clock may end it while some of several choices have ended

    def submit(
        self, lane: DispatchLane[ActiveRequest], measured: MeasuredRequest, client_key: int, ended: EndedRequests
    ) -> None:
        """Ask the dispatcher for a replica; once it is over, `ended` remembers it."""
        parsed = measured.parsed
        if self._bounds.max_duration_s is not None:
            self._tracks_choices = parsed.stream and not parsed.is_plain
            if parsed.is_plain and not parsed.stream:
                self._stream_to_assemble(measured, lane.route.max_model_len)
        super().submit(lane, measured, client_key, ended)

    def _stream_to_assemble(self, measured: MeasuredRequest, max_model_len: int) -> None:
        """Have replicas stream an answer that is passed on whole: else there is nothing of it when its time is up."""
        is_chat, whole_body = self._is_chat, self._first_body
        streamed = streamed_body(whole_body, is_chat=is_chat, counts=False)
        if streamed:
            self._is_assembled, self._first_body = True, streamed
            self._body = streamed_body(whole_body, is_chat=is_chat, counts=True)
            self._text_bytes_max = self._kept_bytes_max(measured, max_model_len)

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
        if relay is not None:
            self._note_bound(relay.ending or relay.last)
        super()._complete_pieces()

    def _complete_whole(self, status: int) -> None:
        assembly = self._assembly if status == 200 else None
        if assembly is None:
            if status == 200:
                self._note_bound(self._response.held())
            super()._complete_whole(status)
        elif not assembly.is_finished:
            self._faulted(truncated())
        else:
            body = assembly.body(self.request.prompt.prompt_tokens)
            self._note_bound(body)
            self._write_assembled(assembly, body)
            if self._loops is not None:
                note_loop(self.request, body)
            self._dispatcher.answered(self.request, Ending.COMPLETE)

    def end_early(self, reason: BoundReason) -> None:
        """Write the end of an answer that its replica was not done with."""
        assembly, response, most_s = self._assembly, self._response, self._bounds.max_duration_s
        if assembly is None:
            super().end_early(reason)
            return
        note = reason.value.encode() + (b"=%gs" % most_s if reason is BoundReason.MAX_DURATION and most_s else b"")
        response.limited = b", ".join(filter(None, (response.limited, note)))
        ends = {"finish_reason": FINISH_REASON, "stop_reason": reason.value}
        self._write_assembled(assembly, assembly.body(self.request.prompt.prompt_tokens, **ends))

    def _write_assembled(self, assembly: AnswerAssembly, body: bytes) -> None:
        response = self._response
        response.headers = [each for each in response.headers if each[0] != b"content-type"] + [wire.JSON]
        response.whole(body)
        self._note_usage(assembly.usage(self.request.prompt.prompt_tokens))

    def _note_bound(self, answer: bytes) -> None:
        """Note whether a bound of the server's ended it. What a ladder step cuts further is that step's doing."""
        length_bound = None if _LENGTH in self._response.degraded else self._received.length_bound
        self.request.bounded_by = bound_of(answer, self._bounds, length_bound)
