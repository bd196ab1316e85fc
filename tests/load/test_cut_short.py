"""Every request that was sent counts once, also those that no answer ever named a lane for."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import SloBreachError, UnavailableError
from fleetctl.load.accounts import UNNAMED_LANE
from fleetctl.load.report import LoadProgress, LoadReport, LoadSpec
from fleetctl.load.worker import LoadRun
from fleetctl.model.profile import Distribution, WorkloadSpec
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.verdict import Compliance
from fleetctl.operations.traffic import LoadVerdict, check_slo
from tests.load.conftest import answer_well, open_stream, token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.load.conftest import Behaviour, Server

    Serve = Callable[[Behaviour], Awaitable[Server]]

SMALL = WorkloadSpec(peak_rps=40, prompt_tokens=Distribution(p50=20, p99=40), output_tokens=Distribution(p50=4, p99=6))


def slo(ttft_s: float) -> LaneSlo:
    return LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=ttft_s),))


PATIENT = {"short": slo(30.0), "long": slo(60.0)}
STRICT = {"short": slo(0.05), "long": slo(0.2)}


async def run(
    server: Server, *, seen: list[LoadProgress] | None = None, stop_s: float | None = None, **wanted: object
) -> LoadReport:
    fields = {"workload": SMALL, "duration_s": 0.6, "drain_timeout_s": 0.4, "drain_s": 0.1, "seed": 7} | wanted
    spec = LoadSpec(url=server.url, **fields)  # type: ignore[arg-type]  # each test gives fields by name
    load = LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=(seen if seen is not None else []).append)
    if stop_s is not None:
        asyncio.get_running_loop().call_later(stop_s, load.stop)
    return await load.run()


async def never_answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    await asyncio.sleep(30)  # noqa: TID251  # longer than the client waits; no header is sent
    return web.Response()


def answer_first(count: int, then: Behaviour = never_answer) -> Behaviour:
    """Answer so many requests well, and the others as `then` does."""
    left = count

    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        nonlocal left
        left -= 1
        return await (answer_well if left >= 0 else then)(request, body)

    return behave


def assert_each_sent_counts_once(report: LoadReport) -> None:
    for figures in (*report.lanes, report.total):
        ended = figures.ok + figures.refused + figures.failures
        assert figures.requests == ended + figures.cut_short
        assert figures.verdict.offered == figures.requests - figures.rejected
        assert figures.verdict.good + figures.verdict.undecided <= figures.verdict.offered
    assert report.total.requests == sum(lane.requests for lane in report.lanes) == report.generator.sent
    assert report.total.cut_short == report.unfinished
    assert report.total.verdict.offered == sum(lane.verdict.offered for lane in report.lanes)


async def test_a_run_that_was_mostly_not_answered_in_time_is_undecided(serve: Serve) -> None:
    report = await run(await serve(answer_first(6)), slos=PATIENT)
    assert_each_sent_counts_once(report)
    assert [lane.lane for lane in report.lanes] == ["short", UNNAMED_LANE]
    total = report.total
    assert total.ok == total.good == 6
    assert total.cut_short == total.verdict.undecided == report.generator.sent - 6 > 6
    assert total.attainment == pytest.approx(6 / report.generator.sent)
    assert LoadVerdict(report=report).compliance is Compliance.UNDECIDED
    with pytest.raises(UnavailableError, match=r"cut short") as caught:
        check_slo(report)
    assert caught.value.exit_code == 9


async def test_an_interrupted_run_is_undecided_as_well(serve: Serve) -> None:
    report = await run(await serve(answer_first(6)), slos=PATIENT, duration_s=60.0, stop_s=0.6)
    assert report.ended_early
    assert_each_sent_counts_once(report)
    assert report.total.verdict.undecided == report.unfinished > 0
    assert LoadVerdict(report=report).compliance is Compliance.UNDECIDED


async def test_waiting_longer_than_the_loosest_limit_is_a_miss_without_any_answer(serve: Serve) -> None:
    seen: list[LoadProgress] = []
    report = await run(await serve(answer_first(2)), slos=STRICT, drain_timeout_s=0.8, interval_s=0.1, seen=seen)
    assert_each_sent_counts_once(report)
    (unnamed,) = (lane for lane in report.lanes if lane.lane == UNNAMED_LANE)
    assert unnamed.breached == {"ttft": unnamed.cut_short}
    assert unnamed.verdict.undecided == 0
    # It was late while it waited, not when it was given up.
    live = [lane for progress in seen for lane in progress.lanes if lane.verdict.compliance is Compliance.MISSED]
    assert {lane.lane for lane in live} == {UNNAMED_LANE}
    with pytest.raises(SloBreachError, match="lane - missed its SLO"):
        check_slo(report)


async def test_a_late_request_counts_for_its_lane_once_an_answer_names_it(serve: Serve) -> None:
    async def answer_late(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.6)  # noqa: TID251  # the server's own slowness
        return await answer_well(request, body)

    seen: list[LoadProgress] = []
    report = await run(await serve(answer_late), slos=STRICT, drain_timeout_s=20.0, interval_s=0.1, seen=seen)
    assert_each_sent_counts_once(report)
    (lane,) = report.lanes
    assert lane.lane == "short"
    assert lane.breached == report.total.breached == {"ttft": lane.requests}
    assert any(live.lane == UNNAMED_LANE for progress in seen for live in progress.lanes)


async def test_a_stream_that_is_cut_short_is_neither_good_nor_missed(serve: Serve) -> None:
    async def stall(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await open_stream(request)
        await response.write(token())
        return await never_answer(request, body)

    report = await run(await serve(answer_first(3, stall)), slos=PATIENT)
    assert_each_sent_counts_once(report)
    (lane,) = report.lanes
    assert lane.lane == "short"
    assert lane.verdict.undecided == lane.cut_short == lane.requests - 3 > 0
    assert lane.verdict.compliance is Compliance.UNDECIDED


async def test_a_lane_that_was_named_and_never_answered_has_its_row(serve: Serve) -> None:
    report = await run(await serve(never_answer), slos=STRICT, lane="long", drain_timeout_s=0.6)
    assert_each_sent_counts_once(report)
    (lane,) = report.lanes
    assert lane.lane == "long"
    assert lane.requests == lane.cut_short == report.generator.sent > 0
    assert lane.breached == {"ttft": lane.requests}


async def test_few_cut_short_leave_a_promise_kept(serve: Serve) -> None:
    report = await run(await serve(answer_first(6)), slos=PATIENT, objective=0.05)
    assert report.total.verdict.undecided > 0
    assert LoadVerdict(report=report).compliance is Compliance.KEPT
    check_slo(report)


async def test_without_slos_what_was_cut_short_is_told_all_the_same(serve: Serve) -> None:
    report = await run(await serve(answer_first(3)), workload=SMALL)
    assert report.total.cut_short == report.generator.sent - 3
    assert report.total.verdict.compliance is Compliance.NONE


async def test_a_lane_named_in_the_request_gives_way_to_the_one_that_answers(serve: Serve) -> None:
    server = await serve(functools.partial(answer_well, first_s=0.0))
    report = await run(server, slos=PATIENT, lane="long", drain_timeout_s=20.0)
    assert_each_sent_counts_once(report)
    (lane,) = report.lanes
    assert lane.lane == "short"
    assert lane.good == lane.ok
