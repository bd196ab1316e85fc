"""The load process: sends on schedule whatever the answers do, counts, and says so line by line."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from fleetctl.certificates import client_context
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.judge import RUN_CONFIDENCE
from fleetctl.core.slo.promises import TierPromises
from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.core.slo.traffic import TrafficBreakdown
from fleetctl.errors import ConfigError, UnavailableError
from fleetctl.load.accounts import ClientAccounts
from fleetctl.load.calls import call_headers
from fleetctl.load.counts import LoadCounts
from fleetctl.load.exchange import BATCH_HEADER, LANE_HEADER, TIER_HEADER, ClientExchange, ClientRequest, converse
from fleetctl.load.prompts import Prompts, request_body
from fleetctl.load.report import GeneratorFigures, LoadProgress, LoadReport, LoadSpec
from fleetctl.load.trace import Arrival, arrival_duration_s, arrivals, check_spec
from fleetctl.load.workflows import WorkflowPlayer
from fleetctl.model.tiers import given_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fleetctl.clock import Clock

_CONNECT_S = 10.0
# Servers close idle connections (uvicorn after 5 s); one closed while we write to it would look like a failure.
_KEEPALIVE_S = 4.0


class LoadRun:
    """One run: `stop` ends its arrivals early, and it still reports."""

    def __init__(self, spec: LoadSpec, *, clock: Clock, on_progress: Callable[[LoadProgress], None]) -> None:
        check_spec(spec)
        self._spec = spec
        self._clock = clock
        self._on_progress = on_progress
        self._stop, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._total, self._recent = self._counts(), self._counts()
        self._accounts = _accounts(spec, clock.monotonic_s())
        self._traffic = TrafficBreakdown()
        self._keys = {client: _authorization(reference) for client, reference in spec.keys.items()}
        self._lateness = QuantileSketch()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._offered = self._sent = self._overflow = self._in_flight_peak = self._unfinished = 0
        self._start_s = self._ticked_s = self._last_answer_s = 0.0
        self._scheduled_s = 0.0  # how much of the schedule has been sent, however late
        self._drain_ends_s: float | None = None
        self._drain_timed_out = False
        self._fault: BaseException | None = None
        salt = "" if spec.repeats_prompts else secrets.token_hex(8)
        self._prompts = Prompts(seed=spec.seed, bytes_per_token=spec.bytes_per_token, salt=salt)
        self._workflows = WorkflowPlayer(spec.kinds)
        self._thinking = 0  # calls that are due later
        self._is_ending = False  # nobody follows on anybody any more

    def stop(self) -> None:
        """End the arrivals now; in-flight requests get `drain_s`."""
        self._stop.set()

    async def run(self) -> LoadReport:
        """Send everything, wait for the answers, and return the report. Raises ConfigError, UnavailableError."""
        spec = self._spec
        # Compressed events would arrive in lumps, and gaps between tokens are what is measured.
        headers = {"content-type": "application/json", "accept-encoding": "identity", **_authorization(spec.api_key)}
        timeout = aiohttp.ClientTimeout(total=spec.timeout_s, sock_connect=_CONNECT_S)
        tls = client_context(spec.certificate) if spec.certificate else True  # as the system's authorities say
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S, ssl=tls)
        async with aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=timeout, auto_decompress=False, read_bufsize=2**18
        ) as session:
            self._session = session
            names = [spec.model] if spec.model else [each.name for each in spec.models]
            names = names or [await _first_model(session, spec.url)]
            self._model, model = names[0], ", ".join(names)
            self._start_s = self._ticked_s = self._last_answer_s = self._clock.monotonic_s()
            self._accounts = _accounts(spec, self._start_s)
            ticker = asyncio.create_task(self._tick())
            try:
                await self._send_all()
                arrivals_end_s = self._clock.monotonic_s() - self._start_s
                await self._drain()
            finally:
                ticker.cancel()
        if self._fault is not None:
            raise self._fault
        return self._report(model, arrivals_end_s)

    async def _send_all(self) -> None:
        spec = self._spec
        for arrival in arrivals(spec, random.Random(spec.seed)):
            if not await self._wait_until(arrival.at_s):
                return
            self._scheduled_s = arrival.at_s
            at_s = self._start_s + arrival.at_s
            due_s = at_s if arrival.call is None else self._workflows.arrived(arrival, at_s)
            if due_s is not None and due_s <= at_s:
                self._send(arrival, due_s)
            elif due_s is not None:
                self._launch(self._send_later(arrival, due_s))
        duration_s = arrival_duration_s(spec)
        if duration_s is not None and await self._wait_until(duration_s):
            self._scheduled_s = duration_s

    def _send(self, arrival: Arrival, due_s: float, *, is_retry: bool = False) -> None:
        """Send a request that is due, unless too many are in flight."""
        self._offered += 1
        if len(self._in_flight) - self._thinking >= self._spec.in_flight_max:
            self._overflow += 1
            if not is_retry:
                self._accounts.offered(self._spec.lane or arrival.lane, due_s)
            if arrival.call is not None:
                self._workflows.failed(arrival, "overflow")
            return
        body = request_body(arrival, model=arrival.model or self._model, text=self._prompts.text(arrival))
        headers = _headers(arrival, self._spec) | self._keys.get(arrival.client, {})
        if arrival.call is not None:
            headers |= call_headers(arrival.call, self._workflows.parent(arrival))
        url = self._spec.url.rstrip("/") + "/v1/chat/completions"
        tier = _expected_tier(arrival, self._spec)
        request = ClientRequest(url=url, body=body, headers=headers, is_stream=arrival.stream, tier=tier, due_s=due_s)
        self._launch(self._one(arrival, request, due_s, is_retry=is_retry))

    async def _send_later(self, arrival: Arrival, due_s: float, *, is_retry: bool = False) -> None:
        """Send a call when it is due; a run that ends before leaves its workflow undecided."""
        self._thinking += 1
        try:
            await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))
        except asyncio.CancelledError:
            return
        finally:
            self._thinking -= 1
        if not self._is_ending and not self._stop.is_set() and self._workflows.is_wanted(arrival):
            self._send(arrival, due_s, is_retry=is_retry)

    def _launch(self, request: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(request)
        self._in_flight.add(task)
        self._idle.clear()
        self._in_flight_peak = max(self._in_flight_peak, len(self._in_flight) - self._thinking)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        # Whatever the other side does is counted; what is left is a fault of ours, and no figure would be true.
        if not task.cancelled() and task.exception() is not None:
            self._fault = self._fault or task.exception()
            self._stop.set()
        if not self._in_flight:
            self._idle.set()

    async def _wait_until(self, at_s: float) -> bool:
        """Wait for a moment of the run; False: the run was stopped before it."""
        delay_s = self._start_s + at_s - self._clock.monotonic_s()
        if delay_s <= 0:
            await self._clock.sleep(0)  # behind schedule: let what was sent get its turn
            return not self._stop.is_set()
        try:
            async with asyncio.timeout(delay_s):
                await self._stop.wait()
        except TimeoutError:
            return True
        return False

    async def _one(self, arrival: Arrival, request: ClientRequest, due_s: float, *, is_retry: bool) -> None:
        self._sent += 1
        self._lateness.add(max(0.0, self._clock.monotonic_s() - due_s))
        exchange = await converse(self._session, request, accounts=self._accounts, now_s=self._clock.monotonic_s)
        self._count(exchange)
        # A fleet that refuses would make its own traffic burstier by those who come back.
        if not is_retry and exchange.ending is not Ending.REJECTED:
            self._accounts.offered(exchange.lane, due_s)
        stopwatch = exchange.stopwatch
        if stopwatch is not None and exchange.ending is not Ending.REJECTED:
            self._traffic.add(
                exchange.tier,
                arrival.client,
                stopwatch,
                refusal=(exchange.reason or "429") if exchange.status == 429 else "",
                served_tokens=exchange.prompt_tokens + exchange.output_tokens,
            )
        if arrival.call is not None and not exchange.is_cut_short:
            self._follow(arrival, exchange)

    def _follow(self, arrival: Arrival, exchange: ClientExchange) -> None:
        """Send what follows on a call's end: the calls that waited for it, or itself again after a refusal."""
        now_s = self._clock.monotonic_s()
        if exchange.is_ok:
            for due_s, following in self._workflows.completed(arrival, now_s):
                self._follow_at(following, due_s)
        elif exchange.status in (429, 503):
            again_s = self._workflows.refused(arrival, now_s, exchange.retry_after_s)
            if again_s is not None:
                self._follow_at(arrival, again_s, is_retry=True)
        else:
            self._workflows.failed(arrival, exchange.failure)

    def _follow_at(self, arrival: Arrival, due_s: float, *, is_retry: bool = False) -> None:
        # A run that has ended leaves what follows unsent, and its workflow undecided.
        if self._is_ending or self._stop.is_set():
            return
        if due_s <= self._clock.monotonic_s():
            self._send(arrival, due_s, is_retry=is_retry)
        else:
            self._launch(self._send_later(arrival, due_s, is_retry=is_retry))

    def _count(self, exchange: ClientExchange) -> None:
        if exchange.is_cut_short:
            self._unfinished += 1
        else:
            self._last_answer_s = self._clock.monotonic_s()
        self._recent.add(self._accounts.lane_name(exchange.lane), exchange)

    async def _drain(self) -> None:
        """Wait for the answers, but not for ever; after an early end they share a short time."""
        timeout_s = self._spec.drain_timeout_s
        self._drain_ends_s = self._clock.monotonic_s() + timeout_s
        waits = [asyncio.create_task(event.wait()) for event in (self._stop, self._idle)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s)
        for wait in waits:
            wait.cancel()
        self._drain_timed_out = bool(self._in_flight) and not self._stop.is_set()
        if self._in_flight and self._stop.is_set():
            await asyncio.wait(set(self._in_flight), timeout=self._spec.drain_s)
        self._is_ending = True
        left = set(self._in_flight)
        for task in left:
            task.cancel()
        await asyncio.gather(*left)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(self._spec.interval_s)
            self._on_progress(self._progress())

    def _progress(self) -> LoadProgress:
        now_s = self._clock.monotonic_s()
        interval_s, self._ticked_s = now_s - self._ticked_s, now_s
        recent, self._recent = self._recent, self._counts()
        self._total.merge(recent)
        verdicts = self._accounts.live(now_s, self._clock.now())
        return LoadProgress(
            elapsed_s=now_s - self._start_s,
            duration_s=arrival_duration_s(self._spec),
            in_flight=len(self._in_flight) - self._thinking,
            lanes=recent.interval(verdicts, interval_s=interval_s),
            generator=self._generator(),
            drain_left_s=max(0.0, self._drain_ends_s - now_s) if self._drain_ends_s is not None else None,
        )

    def _counts(self) -> LoadCounts:
        return LoadCounts(tuple(self._spec.slos))

    def _report(self, model: str, duration_s: float) -> LoadReport:
        self._total.merge(self._recent)
        now_s = self._clock.monotonic_s()
        elapsed_s = max(duration_s, self._last_answer_s - self._start_s)
        total, accounts = self._total, self._accounts
        return LoadReport(
            url=self._spec.url,
            model=model,
            source=self._spec.trace or "generated",
            duration_s=duration_s,
            elapsed_s=elapsed_s,
            ended_early=self._stop.is_set(),
            drain_timed_out=self._drain_timed_out,
            unfinished=self._unfinished,
            lanes=total.lanes(accounts, now_s=now_s, elapsed_s=elapsed_s, duration_s=self._scheduled_s),
            total=total.total(accounts, now_s=now_s, elapsed_s=elapsed_s, duration_s=self._scheduled_s),
            generator=self._generator(),
            tiers=self._traffic.by_tier([tier.name for tier in self._spec.tiers], self._tier_promises().judged),
            clients=self._traffic.by_client(),
            workflows=self._workflows.figures(now_s),
        )

    def _tier_promises(self) -> TierPromises:
        spec, lanes = self._spec, self._accounts.promised
        return TierPromises(tiers=spec.tiers, lanes=lanes, objective=spec.objective, confidence=RUN_CONFIDENCE)

    def _generator(self) -> GeneratorFigures:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return GeneratorFigures(
            offered=self._offered,
            sent=self._sent,
            overflow=self._overflow,
            lateness=self._lateness.summary(),
            cpu_s=usage.ru_utime + usage.ru_stime,
            in_flight_peak=self._in_flight_peak,
        )


def _accounts(spec: LoadSpec, now_s: float) -> ClientAccounts:
    return ClientAccounts(spec.slos, objective=spec.objective, now_s=now_s, tiers=spec.tiers, planned=spec.planned)


def _expected_tier(arrival: Arrival, spec: LoadSpec) -> str:
    """Return the tier that a request should have: its key's, or a lower one that it names; "": its lane's, whichever that is."""
    named = spec.tier or arrival.tier
    own = spec.key_tiers.get(spec.keys.get(arrival.client, spec.api_key), "")
    order = [tier.name for tier in spec.tiers]
    if own not in order or named not in order:
        return named or own
    return order[given_rank(order.index(own), order.index(named))]


def _headers(arrival: Arrival, spec: LoadSpec) -> dict[str, str]:
    named = {LANE_HEADER: spec.lane or arrival.lane, TIER_HEADER: spec.tier or arrival.tier}
    headers = {header: name for header, name in named.items() if name}
    return headers | ({BATCH_HEADER: "true"} if arrival.batch else {})


def _authorization(reference: str) -> dict[str, str]:
    """Return the header with the key that a reference names."""
    if not reference:
        return {}
    kind, _, where = reference.partition(":")
    key = ""
    if kind == "env":
        key = os.environ.get(where, "")
    elif kind == "file":
        try:
            key = Path(where).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"the API key file {where} cannot be read: {error.strerror}") from error
    else:
        raise ConfigError("the API key must be a reference", hint="write env:NAME or file:PATH")
    if not key:
        raise ConfigError(f"{reference} holds no API key", hint="set it, or leave out --api-key")
    return {"authorization": f"Bearer {key}"}


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model] = []


async def _first_model(session: aiohttp.ClientSession, url: str) -> str:
    address = url.rstrip("/") + "/v1/models"
    hint = "is the fleet up? `fleetctl ls` lists fleets; --model names a model without asking"
    try:
        async with session.get(address, timeout=aiohttp.ClientTimeout(total=_CONNECT_S)) as response:
            body = await response.read()
            if response.status in (401, 403):
                raise UnavailableError(f"{address} refuses the key ({response.status})", hint="give --api-key env:NAME")
            if response.status != 200:
                raise UnavailableError(f"{address} answers {response.status}", hint=hint)
        models = msgspec.json.decode(body, type=_Models).data
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise UnavailableError(f"{address} does not answer: {str(error) or 'too slow'}", hint=hint) from error
    except msgspec.DecodeError as error:
        raise UnavailableError(f"{address} does not list models: {error}", hint="is this an OpenAI API?") from error
    if not models:
        raise UnavailableError(f"{address} lists no model", hint=hint)
    return models[0].id
