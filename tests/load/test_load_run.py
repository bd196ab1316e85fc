"""The generator measures as a client, keeps kinds of failure apart, and never waits for answers."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, UnavailableError
from fleetctl.load.report import LoadProgress, LoadReport, LoadSpec
from fleetctl.load.worker import LoadRun
from fleetctl.model.profile import Distribution, WorkloadSpec
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.tiers import TierSpec
from fleetctl.model.verdict import Compliance
from fleetctl.operations.traffic import failures
from tests.load.conftest import answer_well, event, open_stream, token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.load.conftest import Behaviour, Server

    Serve = Callable[[Behaviour], Awaitable[Server]]

SMALL = WorkloadSpec(peak_rps=40, prompt_tokens=Distribution(p50=20, p99=40), output_tokens=Distribution(p50=4, p99=6))
SLO = LaneSlo(
    targets=(
        LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.2),
        LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=30.0),
    )
)


async def load(
    server: Server, *, on_progress: Callable[[LoadProgress], None] = lambda _: None, **wanted: object
) -> LoadReport:
    fields = {"workload": SMALL, "duration_s": 0.5, "timeout_s": 20.0, "seed": 7} | wanted
    spec = LoadSpec(url=server.url, **fields)  # type: ignore[arg-type]  # each test gives fields by name
    return await LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=on_progress).run()


async def test_what_the_generator_sends_late_counts_as_late(serve: Serve) -> None:
    held: list[LoadProgress] = []

    def hold_the_loop_once(seen: LoadProgress) -> None:
        held.append(seen)
        until_s = SYSTEM_CLOCK.monotonic_s() + (0.8 if len(held) == 1 else 0.0)
        while SYSTEM_CLOCK.monotonic_s() < until_s:
            pass

    server = await serve(answer_well)
    slow = await load(server, on_progress=hold_the_loop_once, duration_s=1.5, interval_s=0.2, slos={"short": SLO})
    (lane,) = slow.lanes
    assert lane.ttft.max_s > 0.6, "a request that was due as the generator stood still has waited"
    assert lane.ttft.max_s == pytest.approx(slow.generator.lateness.max_s, abs=0.3)
    assert lane.breached.get("ttft", 0) > 0


async def test_every_run_sends_texts_that_no_cache_holds_unless_it_is_to_repeat_them(serve: Serve) -> None:
    server = await serve(answer_well)
    sent: list[list[str]] = []
    for repeats in (False, False, True, True):
        server.bodies.clear()
        await load(server, repeats_prompts=repeats)
        sent.append([body["messages"][0]["content"] for body in server.bodies])
    fresh, again, repeated, once_more = sent
    assert [len(text) for text in fresh] == [len(text) for text in again] == [len(text) for text in repeated]
    # A cache keeps blocks of 16 tokens, of about 64 characters: none of these begins as any of another run.
    assert not {text[:64] for text in fresh} & {text[:64] for text in again + repeated}
    assert sorted(repeated) == sorted(once_more)  # two that are due at once come in either order


async def test_a_good_run_counts_every_request_once(serve: Serve) -> None:
    server = await serve(answer_well)
    report = await load(server, slos={"short": SLO})
    (lane,) = report.lanes
    assert report.model == "tiny"
    assert lane.lane == "short"
    assert lane.requests == lane.ok == report.generator.sent == report.generator.offered == len(server.bodies)
    assert lane.requests > 5
    assert lane.attainment is not None
    assert lane.output_tokens == sum(body["max_tokens"] for body in server.bodies)
    assert lane.prompt_tokens == sum(len(body["messages"][0]["content"]) // 4 for body in server.bodies)
    assert lane.ttft.count == lane.e2e.count == lane.ok
    assert lane.itl.count == lane.output_tokens - lane.ok
    assert lane.goodput_rps == pytest.approx(lane.good / report.elapsed_s)
    assert lane.output_tokens_per_s == pytest.approx(lane.output_tokens / report.elapsed_s)
    assert 0.5 <= report.duration_s <= report.elapsed_s < 10
    assert report.generator.cpu_s > 0
    assert not report.ended_early
    assert report.total.requests == lane.requests


async def test_ttft_and_gaps_are_measured_at_the_client(serve: Serve) -> None:
    server = await serve(functools.partial(answer_well, first_s=0.15, gap_s=0.05))
    report = await load(server, duration_s=0.3)
    lane = report.total
    assert 0.14 < lane.ttft.p50_s < 2.0
    assert 0.04 < lane.itl.p50_s < 1.0
    assert lane.e2e.p50_s > lane.ttft.p50_s + 0.1


async def test_a_slow_first_token_misses_the_slo_but_is_no_failure(serve: Serve) -> None:
    server = await serve(functools.partial(answer_well, first_s=0.4))
    report = await load(server, slos={"short": SLO})
    (lane,) = report.lanes
    assert lane.failures == 0
    assert lane.ok == lane.requests
    assert lane.good == 0
    assert lane.attainment == 0.0
    assert lane.breached == {"ttft": lane.requests}
    assert report.total.attainment == 0.0


async def test_refusals_are_told_apart_from_failures_and_are_misses_all_the_same(serve: Serve) -> None:
    request_count = 0

    async def refuse_half(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        nonlocal request_count
        request_count += 1
        if request_count % 4 == 1:
            return web.json_response({}, status=429, headers={"retry-after": "2", "x-fleetctl-lane": "short"})
        if request_count % 4 == 2:
            return web.json_response(
                {}, status=429, headers={"x-fleetctl-lane": "short", "x-fleetctl-reason": "max-wait"}
            )
        if request_count % 8 == 3:
            headers = {"x-fleetctl-lane": "short", "x-fleetctl-reason": "predicted-wait"}
            return web.json_response({}, status=429, headers=headers)
        return await answer_well(request, body)

    loose = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=30.0),))
    report = await load(await serve(refuse_half), slos={"short": loose})
    (lane,) = report.lanes
    assert lane.refused + lane.ok == lane.requests
    assert 0 < lane.refused_with_retry_after < lane.refused
    assert lane.failures == 0
    assert lane.attainment == pytest.approx(lane.ok / lane.requests)
    assert lane.verdict.compliance is Compliance.MISSED
    assert lane.breached == {"refused": lane.refused}
    assert set(lane.refusals) == {"max-wait", "predicted-wait"}, "each by the gateway's own name"
    (line,) = failures(lane)
    assert f"predicted-wait {lane.refusals['predicted-wait']}" in line


async def truncate(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await open_stream(request)
    await response.write(token())
    return response


async def reset_in_the_middle(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await open_stream(request)
    await response.write(token())
    assert request.transport is not None
    request.transport.abort()
    return response


async def reset_at_once(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def say_error(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await open_stream(request)
    await response.write(token())
    await response.write(event({"error": {"message": "the engine went away", "code": 500}}))
    return response


async def babble(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await open_stream(request)
    await response.write(b"data: {not json\n\n")
    return response


async def hang(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await open_stream(request)
    await asyncio.sleep(30)  # noqa: TID251  # longer than the client waits
    return response


async def break_down(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": {}}, status=500, headers={"x-fleetctl-lane": "short"})


async def find_nothing(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": {}}, status=404, headers={"x-fleetctl-lane": "short"})


@pytest.mark.parametrize(
    ("behave", "kind"),
    [
        (truncate, "truncated"),
        (reset_in_the_middle, "truncated"),
        (reset_at_once, "connect"),
        (say_error, "error-event"),
        (babble, "malformed"),
        (hang, "timeout"),
        (break_down, "http-500"),
        (find_nothing, "http-404"),
    ],
)
async def test_failures_are_told_apart_by_kind(serve: Serve, behave: Behaviour, kind: str) -> None:
    timeout_s = 0.5 if kind == "timeout" else 20.0
    report = await load(await serve(behave), duration_s=0.2, timeout_s=timeout_s, slos={"short": SLO, "-": SLO})
    (lane,) = report.lanes
    assert lane.failed == {kind: lane.requests}
    assert lane.requests > 0
    assert lane.ok == lane.good == 0
    # A 404 is the client's own fault: neither good nor a miss.
    assert lane.attainment == (None if kind == "http-404" else 0.0)
    assert lane.rejected == (lane.requests if kind == "http-404" else 0)


async def test_503_is_counted_by_itself(serve: Serve) -> None:
    async def be_unavailable(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({}, status=503, headers={"x-fleetctl-lane": "short"})

    report = await load(await serve(be_unavailable), duration_s=0.2)
    assert report.total.unavailable == report.total.requests == report.total.failures > 0
    assert report.total.failed == {}


async def test_arrivals_do_not_wait_for_answers(serve: Serve) -> None:
    server = await serve(functools.partial(answer_well, first_s=1.0))
    report = await load(server, duration_s=0.8)
    assert report.generator.in_flight_peak > 10
    assert report.generator.offered == pytest.approx(32, rel=0.5)
    assert report.elapsed_s > report.duration_s


async def test_arrivals_beyond_the_in_flight_bound_are_counted_not_sent(serve: Serve) -> None:
    server = await serve(functools.partial(answer_well, first_s=1.0))
    report = await load(server, duration_s=0.8, in_flight_max=3)
    assert report.generator.in_flight_peak == 3
    assert report.generator.overflow > 0
    assert report.generator.offered == report.generator.sent + report.generator.overflow


async def test_batch_requests_carry_the_hint_and_are_not_streamed(serve: Serve) -> None:
    server = await serve(answer_well)
    report = await load(server, batch_share=1.0)
    assert {header.get("x-fleetctl-batch") for header in server.headers} == {"true"}
    assert {body["service_tier"] for body in server.bodies} == {"flex"}
    (lane,) = report.lanes
    assert lane.lane == "batch"
    assert lane.ok == lane.requests
    assert lane.ttft.count == 0
    assert lane.output_tokens == sum(body["max_tokens"] for body in server.bodies)


async def test_lane_model_and_key_are_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD_TEST_KEY", "sesame")
    server = await serve(answer_well)
    await load(server, lane="long", model="other", api_key="env:LOAD_TEST_KEY", duration_s=0.2)
    assert {header["x-fleetctl-lane"] for header in server.headers} == {"long"}
    assert {header["authorization"] for header in server.headers} == {"Bearer sesame"}
    assert {body["model"] for body in server.bodies} == {"other"}


async def test_progress_tells_each_interval_once(serve: Serve) -> None:
    server = await serve(answer_well)
    seen: list[LoadProgress] = []
    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=1.5, interval_s=0.2)
    report = await LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=seen.append).run()
    counted = sum(lane.requests for progress in seen for lane in progress.lanes)
    assert len(seen) >= 2
    assert 0 < counted <= report.total.requests
    assert [p.elapsed_s for p in seen] == sorted(p.elapsed_s for p in seen)


async def test_a_stopped_run_still_reports_and_says_what_it_cut(serve: Serve) -> None:
    server = await serve(hang)
    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=60.0, drain_s=0.1)
    run = LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=lambda _: None)
    asyncio.get_running_loop().call_later(0.5, run.stop)
    report = await run.run()
    assert report.ended_early
    assert report.total.requests == report.total.cut_short == report.unfinished > 0
    assert report.duration_s < 30


async def test_answers_are_not_waited_for_beyond_the_drain_timeout(serve: Serve) -> None:
    server = await serve(hang)
    report = await load(server, duration_s=0.3, drain_timeout_s=0.5, slos={"short": SLO})
    assert report.drain_timed_out
    assert report.unfinished > 0
    assert report.elapsed_s < 20  # they never end by themselves
    # They were late when they were given up, which must not look like success.
    (total,) = (report.total,)
    assert total.requests == total.cut_short
    assert total.breached["ttft"] == report.unfinished


async def test_a_server_that_is_not_there_is_told_before_any_load(serve: Serve) -> None:
    server = await serve(answer_well)
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        await LoadRun(LoadSpec(url="http://127.0.0.1:9"), clock=SYSTEM_CLOCK, on_progress=lambda _: None).run()
    assert "fleetctl ls" in caught.value.hint
    assert server.bodies == []


async def test_connections_that_are_refused_during_the_run_are_connect_failures(serve: Serve) -> None:
    server = await serve(answer_well)
    server.url = "http://127.0.0.1:9"
    report = await load(server, model="tiny", duration_s=0.2)
    assert report.lanes[0].lane == "-"
    assert report.lanes[0].failed == {"connect": report.total.requests}


@pytest.mark.parametrize("reference", ["sk-the-key-itself", "env:FLEETCTL_TEST_NOT_SET", "file:/nonexistent/key"])
async def test_a_key_that_cannot_be_had_is_told_without_repeating_it(serve: Serve, reference: str) -> None:
    server = await serve(answer_well)
    with pytest.raises(ConfigError) as caught:
        await load(server, api_key=reference)
    assert "sk-the-key-itself" not in caught.value.message + caught.value.hint


class _LastingClock:
    """Tells the time some hundred times, and then fails as a faulty part of ours would."""

    def __init__(self, readings: int) -> None:
        self._left = readings

    def __getattr__(self, name: str) -> Any:  # all else is the system's
        return getattr(SYSTEM_CLOCK, name)

    def monotonic_s(self) -> float:
        self._left -= 1
        if self._left == 0:
            raise RuntimeError("a fault of ours")
        return SYSTEM_CLOCK.monotonic_s()


@pytest.mark.parametrize("readings", [40, 41, 42, 43, 44, 45])
async def test_a_fault_of_ours_ends_the_run_and_is_no_request_less(serve: Serve, readings: int) -> None:
    server = await serve(answer_well)
    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=1.0, timeout_s=20.0, seed=7)
    clock: Any = _LastingClock(readings)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await LoadRun(spec, clock=clock, on_progress=lambda _: None).run()


async def test_a_client_measures_how_evenly_answers_come(serve: Serve) -> None:
    async def in_bursts(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await open_stream(request)
        for number in range(2):
            await response.write(token("a") * 4)
            await SYSTEM_CLOCK.sleep(0.6 * (1 - number))
        await response.write(event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 8}}))
        await response.write(b"data: [DONE]\n\n")
        return response

    server = await serve(in_bursts)
    [lane] = (await load(server, duration_s=0.2)).lanes
    assert lane.ok == lane.requests > 0
    streams = lane.streams
    assert (streams.answers, streams.stalled_answers, streams.stalls) == (lane.ok, lane.ok, lane.ok)
    assert (streams.chunks, streams.tokens) == (2 * lane.ok, 8 * lane.ok)
    assert streams.tokens_per_chunk == 4.0
    assert streams.gap.p50_s > 0.5


async def test_every_client_of_a_trace_has_its_own_key_tier_and_figures(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = tmp_path / "t.csv"
    rows = ["0,20,4,acme,premium", "0.01,20,4,,", "0.02,20,4,umbra,free", "0.03,20,4,acme,premium"]
    trace.write_text("arrival_s,prompt_tokens,output_tokens,client,tier\n" + "\n".join(rows) + "\n")
    monkeypatch.setenv("ACME_KEY", "open")
    monkeypatch.setenv("REST_KEY", "sesame")

    async def refuse_free(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.headers.get("x-fleetctl-tier") == "free":
            return web.json_response({}, status=429, headers={"x-fleetctl-reason": "queue-full"})
        return await answer_well(request, body)

    server = await serve(refuse_free)
    keys = {"acme": "env:ACME_KEY"}
    report = await load(
        server, trace=str(trace), duration_s=None, tiers=(TierSpec(name="premium"), TierSpec(name="free")), keys=keys, api_key="env:REST_KEY", slos={"short": SLO}
    )  # fmt: skip

    sent = sorted((head["authorization"], head.get("x-fleetctl-tier", "")) for head in server.headers)
    wanted = [("open", "premium"), ("open", "premium"), ("sesame", ""), ("sesame", "free")]
    assert sent == [(f"Bearer {key}", tier) for key, tier in wanted]
    tiers = {each.name: each for each in report.tiers}
    assert [each.name for each in report.tiers] == ["premium", "free", ""]
    assert (tiers["premium"].offered, tiers["premium"].good) == (2, 2)
    assert (tiers["free"].offered, tiers["free"].good, tiers["free"].refused) == (1, 0, {"queue-full": 1})
    assert tiers["premium"].served_tokens == 2 * (20 + 4)
    assert tiers["premium"].ttft.count == 2
    assert sum(each.token_share for each in report.tiers) == pytest.approx(1.0)
    assert {each.name: each.offered for each in report.clients} == {"acme": 2, "": 1, "umbra": 1}
