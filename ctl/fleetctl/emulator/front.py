"""The HTTP front: from what is asked to a response on the wire, the same for every flavour."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from aiohttp import HttpVersion11, web

from fleetctl.emulator.asks import Outcome, foresee
from fleetctl.emulator.refusals import Refusal, Why
from fleetctl.emulator.replies import Choice, End, Reply, StreamReply
from fleetctl.emulator.sequence import Sequence
from fleetctl.emulator.tokens import AnswerTexts, Prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.clock import Clock
    from fleetctl.emulator.asks import Ask
    from fleetctl.emulator.board import FaultBoard
    from fleetctl.emulator.dialect import Dialect
    from fleetctl.emulator.engine import Engine
    from fleetctl.emulator.formats import EventFormat

# How long a finished answer may take to reach a client that has stopped reading.
LAST_BYTES_S = 60.0
GARBAGE = b'data: {"id": \x00\xff<<< not an event\n\n'

Planned = tuple[Prompt, str, Outcome]


class Front:
    """Serves asks on one engine."""

    def __init__(
        self, engine: Engine, dialect: Dialect, board: FaultBoard, *, max_model_len: int, clock: Clock
    ) -> None:
        self.engine, self.dialect, self.board = engine, dialect, board
        self.max_model_len = max_model_len
        self.texts = AnswerTexts()
        self.is_draining = False
        self.is_warm = True  # False while the port is open and start-up goes on
        self.idle = asyncio.Event()  # nothing is being served
        self.idle.set()
        self._clock = clock
        self._live: set[Reply] = set()
        self._ids = 0
        self._id_begin = os.urandom(12).hex()
        board.watch(self._faults_changed)

    @property
    def in_flight(self) -> int:
        """Return how many requests are being served."""
        return len(self._live)

    def now_s(self) -> float:
        """Return the wall time in seconds since the epoch, as responses tell it."""
        return self._clock.now().timestamp()

    def new_id(self) -> str:
        """Return an id nobody else has."""
        self._ids += 1
        return f"{self._id_begin}{self._ids:08x}"

    async def respond(
        self, request: web.Request, ask: Ask, event_format: EventFormat, *, is_chat: bool
    ) -> web.StreamResponse:
        """Serve one ask. Raises Refusal before the response has begun."""
        if self.is_draining and self.dialect.manners.refuses_new:
            raise Refusal(Why.SHUTTING_DOWN)
        arrived_s = self.engine.now()
        planned = list(self._plan(ask))
        if self.dialect.is_full(self.engine, sequences=ask.sequences, before_begin=True):
            self._note_rejection()
            raise Refusal(Why.OVERLOADED)
        ended = asyncio.get_running_loop().create_future()
        if not ask.is_stream:
            reply = Reply(event_format, ended, self._broken)
            return await self._whole(reply, ask, planned, arrived_s)
        return await self._stream(request, ended, event_format, (ask, planned, arrived_s), is_chat=is_chat)

    def abort_all(self) -> None:
        """End everything that is being served, as an engine that shuts down at once."""
        for reply in tuple(self._live):
            self.engine.withdraw(choice.sequence for choice in reply.choices)
            reply.end(End.ABORTED)

    def cut_all(self) -> None:
        """Close every connection that is being served."""
        for reply in tuple(self._live):
            self.engine.withdraw(choice.sequence for choice in reply.choices)
            if isinstance(reply, StreamReply):
                reply.transport.abort()
            reply.end(End.CUT)

    def _plan(self, ask: Ask) -> Iterator[Planned]:
        for prompt in ask.prompts:
            room = self.max_model_len - prompt.tokens
            if room < 1:
                raise Refusal(Why.TOO_LONG, str(prompt.tokens))
            for index in range(ask.n):
                seed = ask.choice_seed(index)
                yield prompt, seed, foresee(ask, prompt, self.texts.of(seed), room_tokens=room)

    def _seat(self, reply: Reply, ask: Ask, planned: list[Planned], arrived_s: float) -> None:
        sequences = []
        for index, (prompt, seed, outcome) in enumerate(planned):
            room = self.max_model_len - prompt.tokens
            budget = room if ask.max_tokens is None else min(room, ask.max_tokens)
            sequence = Sequence(
                number=self.engine.next_number(),
                prompt=prompt,
                answer=self.texts.of(seed),
                output_tokens=outcome.output_tokens,
                output_budget=max(budget, outcome.output_tokens),
                finish_reason=outcome.finish_reason,
                is_streamed=ask.is_stream,
                choices=0 if index else ask.n,
                priority=ask.priority,
                arrived_s=arrived_s,
            )
            reply.add(sequence, outcome)
            sequences.append(sequence)
            self.engine.metrics.received(prompt_tokens=prompt.tokens, max_tokens=budget)
        reply.break_at = self.board.break_at(is_stream=reply.is_stream)
        self._live.add(reply)
        self.idle.clear()
        self.engine.submit(sequences)

    def _leave(self, reply: Reply) -> None:
        self.engine.withdraw(choice.sequence for choice in reply.choices)
        self._live.discard(reply)
        if not self._live:
            self.idle.set()

    async def _whole(self, reply: Reply, ask: Ask, planned: list[Planned], arrived_s: float) -> web.Response:
        if self.dialect.is_full(self.engine, sequences=ask.sequences, before_begin=False):
            self._note_rejection()
            raise Refusal(Why.OVERLOADED)
        self._seat(reply, ask, planned, arrived_s)
        try:
            how = await reply.ended
        finally:
            self._leave(reply)
        if how is not End.DONE:
            raise Refusal(Why.ENGINE_FAILED if how is End.FAILED else Why.SHUTTING_DOWN)
        return web.Response(body=reply.format.whole(reply.tallies()), content_type="application/json")

    async def _stream(
        self,
        request: web.Request,
        ended: asyncio.Future[End],
        event_format: EventFormat,
        work: tuple[Ask, list[Planned], float],
        *,
        is_chat: bool,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        is_chunked = request.version >= HttpVersion11
        if is_chunked:
            response.enable_chunked_encoding()
        await response.prepare(request)
        # The head goes out now, before the first token, as Starlette sends it; later writes bypass the response.
        await response.write(b"")
        ask, planned, arrived_s = work
        if self.dialect.is_full(self.engine, sequences=ask.sequences, before_begin=False):
            self._note_rejection()
            await response.write(self.dialect.refuse_in_stream(Refusal(Why.OVERLOADED), is_chat=is_chat))
            await response.write_eof()
            return response
        transport = request.transport
        if transport is None:
            return response
        reply = StreamReply(event_format, ended, self._broken, transport, is_chunked=is_chunked)
        self._seat(reply, ask, planned, arrived_s)
        try:
            how = await reply.ended
            async with asyncio.timeout(LAST_BYTES_S):
                await self._end_stream(response, reply, how, is_chat=is_chat)
        except TimeoutError:
            transport.abort()
        finally:
            self._leave(reply)
        return response

    async def _end_stream(self, response: web.StreamResponse, reply: StreamReply, how: End, *, is_chat: bool) -> None:
        if how is End.CUT:
            return
        last = (
            reply.rest()
            if how is End.DONE
            else self.dialect.refuse_in_stream(
                Refusal(Why.SHUTTING_DOWN if how is End.ABORTED else Why.ENGINE_FAILED), is_chat=is_chat
            )
        )
        if last:
            await response.write(last)
        await response.write_eof()

    def _note_rejection(self) -> None:
        self.engine.metrics.rejected()

    def _faults_changed(self) -> None:
        for reply in self._live:
            reply.break_at = self.board.break_at(is_stream=reply.is_stream)

    def _broken(self, reply: Reply, choice: Choice) -> bool:
        """Apply the faults that are due at a choice's newest token; True if that was its last."""
        due = self.board.breaks_due(choice.sequence.generated, is_stream=reply.is_stream)
        if "hang-mid-stream" in due:
            self.engine.get_stuck()
            return True
        if "fail-generation" in due:
            self.engine.metrics.failed("generation")
            self.engine.withdraw(c.sequence for c in reply.choices)
            reply.end(End.FAILED)
            return True
        if isinstance(reply, StreamReply):
            return self._break_stream(reply, choice, due)
        return False

    def _break_stream(self, reply: StreamReply, choice: Choice, due: frozenset[str]) -> bool:
        if "truncate-streams" in due:
            self.engine.withdraw(c.sequence for c in reply.choices)
            reply.transport.close()
            reply.end(End.CUT)
            return True
        if "garbage-sse" in due and not choice.is_garbled:
            choice.is_garbled = True
            reply.write_events(GARBAGE)
        return False
