"""The HTTP service: from what is asked to a response on the wire, the same for every engine that is played."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from aiohttp import HttpVersion11, web

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason
from fleetctl_emulator.replies import Choice, End, Reply, StreamReply
from fleetctl_emulator.requests import PredictedAnswer, predict_answer
from fleetctl_emulator.sequence import Sequence
from fleetctl_emulator.tokens import AnswerTexts, Prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.clock import Clock
    from fleetctl_emulator.dialect import Dialect
    from fleetctl_emulator.engine_core import EngineCore
    from fleetctl_emulator.fault_injector import FaultInjector
    from fleetctl_emulator.formats import EventFormat
    from fleetctl_emulator.requests import GenerationRequest

# How long a finished answer may take to reach a client that has stopped reading.
LAST_BYTES_S = 60.0
GARBAGE = b'data: {"id": \x00\xff<<< not an event\n\n'

Planned = tuple[Prompt, str, PredictedAnswer]


class EmulatorService:
    """Serves requests on one engine."""

    def __init__(  # noqa: PLR0913  # what one engine is served with
        self,
        engine: EngineCore,
        dialect: Dialect,
        injector: FaultInjector,
        *,
        max_model_len: int,
        vocabulary: int,
        refuses_new: bool,
        stream_interval: int,
        stream_burst_s: float,
        frontend_s: float,
        clock: Clock,
    ) -> None:
        self.engine, self.dialect, self.injector = engine, dialect, injector
        self._refuses_new = refuses_new  # while it drains
        self._stream_interval = stream_interval  # tokens of an event
        self._stream_burst_s = stream_burst_s  # between two bursts of them; 0: each leaves at once
        self.max_model_len, self.vocabulary = max_model_len, vocabulary  # tokens a request holds; tokens there are
        self.texts = AnswerTexts()
        self.is_draining = False
        self.is_warm = True  # False while the port is open and start-up goes on
        self.idle = asyncio.Event()  # nothing is being served
        self.idle.set()
        self._clock = clock
        self._frontend_s = frontend_s  # from a request's arrival until it is scheduled
        self._live: set[Reply] = set()
        self._serving = 0  # requests, those in the front end too
        self._is_over = False  # what was being served has been ended
        self._ids = 0
        self._id_begin = os.urandom(12).hex()
        injector.watch(self._faults_changed)

    @property
    def in_flight(self) -> int:
        """Return how many requests are being served."""
        return self._serving

    def now_s(self) -> float:
        """Return the wall time in seconds since the epoch, as responses tell it."""
        return self._clock.now().timestamp()

    def new_id(self) -> str:
        """Return an id nobody else has."""
        self._ids += 1
        return f"{self._id_begin}{self._ids:08x}"

    async def respond(
        self, request: web.Request, generation: GenerationRequest, event_format: EventFormat, *, is_chat: bool
    ) -> web.StreamResponse:
        """Serve one request. Raises EngineRefusal before the response has begun."""
        if self.is_draining and self._refuses_new:
            raise EngineRefusal(RefusalReason.SHUTTING_DOWN)
        self._serving += 1
        self.idle.clear()
        try:
            return await self._respond(request, generation, event_format, is_chat=is_chat)
        finally:
            self._serving -= 1
            if not self._serving:
                self.idle.set()

    async def _respond(
        self, request: web.Request, generation: GenerationRequest, event_format: EventFormat, *, is_chat: bool
    ) -> web.StreamResponse:
        arrived_s = self.engine.now()
        planned = list(self._plan(generation))
        await self._wait_in_frontend(arrived_s)
        if self.dialect.is_full(self.engine, sequences=generation.sequences, before_begin=True):
            self._note_rejection()
            raise EngineRefusal(RefusalReason.OVERLOADED)
        ended = asyncio.get_running_loop().create_future()
        if not generation.is_stream:
            reply = Reply(event_format, ended, self._broken)
            return await self._whole(reply, generation, planned, arrived_s)
        return await self._stream(request, ended, event_format, (generation, planned, arrived_s), is_chat=is_chat)

    def abort_all(self) -> None:
        """End everything that is being served, as an engine that shuts down at once."""
        self._is_over = True
        for reply in tuple(self._live):
            self.engine.withdraw(choice.sequence for choice in reply.choices)
            reply.end(End.ABORTED)

    def cut_all(self) -> None:
        """Close every connection that is being served."""
        self._is_over = True
        for reply in tuple(self._live):
            self.engine.withdraw(choice.sequence for choice in reply.choices)
            if isinstance(reply, StreamReply):
                reply.transport.abort()
            reply.end(End.CUT)

    async def _wait_in_frontend(self, arrived_s: float) -> None:
        """Wait until a request has been as long in the front end as a real one takes for its template and its tokens.

        What this process took for it by itself is part of that. Raises EngineRefusal if all was ended meanwhile.
        """
        await self._clock.sleep(max(0.0, arrived_s + self._frontend_s - self.engine.now()))
        if self._is_over:
            raise EngineRefusal(RefusalReason.SHUTTING_DOWN)

    def _plan(self, generation: GenerationRequest) -> Iterator[Planned]:
        for prompt in generation.prompts:
            tokens_max = self.max_model_len - prompt.tokens
            if tokens_max < 1:
                raise EngineRefusal(RefusalReason.TOO_LONG, str(prompt.tokens))
            for index in range(generation.n):
                seed = generation.choice_seed(index)
                yield prompt, seed, predict_answer(generation, prompt, self.texts.of(seed), tokens_max=tokens_max)

    def _admit(self, reply: Reply, generation: GenerationRequest, planned: list[Planned], arrived_s: float) -> None:
        sequences = []
        for index, (prompt, seed, predicted) in enumerate(planned):
            tokens_max = self.max_model_len - prompt.tokens
            budget = tokens_max if generation.max_tokens is None else min(tokens_max, generation.max_tokens)
            sequence = Sequence(
                number=self.engine.next_number(),
                prompt=prompt,
                answer=self.texts.of(seed),
                output_tokens=predicted.output_tokens,
                output_budget=max(budget, predicted.output_tokens),
                finish_reason=predicted.finish_reason,
                is_streamed=generation.is_stream,
                choices=0 if index else generation.n,
                priority=generation.priority,
                arrived_s=arrived_s,
            )
            reply.add(sequence, predicted)
            sequences.append(sequence)
            self.engine.metrics.received(prompt_tokens=prompt.tokens, max_tokens=budget)
        reply.break_at = self.injector.break_at(is_stream=reply.is_stream)
        self._live.add(reply)
        self.engine.submit(sequences)

    def _leave(self, reply: Reply) -> None:
        self.engine.withdraw(choice.sequence for choice in reply.choices)
        self._live.discard(reply)

    async def _whole(
        self, reply: Reply, generation: GenerationRequest, planned: list[Planned], arrived_s: float
    ) -> web.Response:
        if self.dialect.is_full(self.engine, sequences=generation.sequences, before_begin=False):
            self._note_rejection()
            raise EngineRefusal(RefusalReason.OVERLOADED)
        self._admit(reply, generation, planned, arrived_s)
        try:
            how = await reply.ended
        finally:
            self._leave(reply)
        if how is not End.DONE:
            raise EngineRefusal(RefusalReason.ENGINE_FAILED if how is End.FAILED else RefusalReason.SHUTTING_DOWN)
        return web.Response(body=reply.format.whole(reply.all_progress()), content_type="application/json")

    async def _stream(
        self,
        request: web.Request,
        ended: asyncio.Future[End],
        event_format: EventFormat,
        work: tuple[GenerationRequest, list[Planned], float],
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
        generation, planned, arrived_s = work
        if self.dialect.is_full(self.engine, sequences=generation.sequences, before_begin=False):
            self._note_rejection()
            await response.write(
                self.dialect.refuse_in_stream(EngineRefusal(RefusalReason.OVERLOADED), is_chat=is_chat)
            )
            await response.write_eof()
            return response
        transport = request.transport
        if transport is None:
            return response
        interval = self._stream_interval
        reply = StreamReply(event_format, ended, self._broken, transport, is_chunked=is_chunked, interval=interval)
        reply.burst_s = self._stream_burst_s
        self._admit(reply, generation, planned, arrived_s)
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
        reply.flush()
        last = (
            reply.rest()
            if how is End.DONE
            else self.dialect.refuse_in_stream(
                EngineRefusal(RefusalReason.SHUTTING_DOWN if how is End.ABORTED else RefusalReason.ENGINE_FAILED),
                is_chat=is_chat,
            )
        )
        if last:
            await response.write(last)
        await response.write_eof()

    def _note_rejection(self) -> None:
        self.engine.metrics.rejected()

    def _faults_changed(self) -> None:
        for reply in self._live:
            reply.break_at = self.injector.break_at(is_stream=reply.is_stream)

    def _broken(self, reply: Reply, choice: Choice) -> bool:
        """Apply the faults that are due at a choice's newest token; True if that was its last."""
        due = self.injector.breaks_due(choice.sequence.generated, is_stream=reply.is_stream)
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
