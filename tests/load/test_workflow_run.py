"""Over real sockets: calls of a workflow follow on each other's ends and say who they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from aiohttp import web

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.load.report import LoadReport, LoadSpec
from fleetctl.load.worker import LoadRun
from fleetctl.load.workflows import CALL_TRIES_MAX
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind
from tests.load.conftest import answer_well

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.load.conftest import Behaviour, Server

    Serve = Callable[[Behaviour], Awaitable[Server]]

AGENT = WorkflowKind(name="agent", targets=(ElapsedTarget(percentile=0.99, limit_s=30.0),))
HEADER = "arrival_s,prompt_tokens,output_tokens,workflow,kind,id,after,think"


def agents(path: Path, count: int, steps: int = 3) -> str:
    rows = [
        f"{number / 100},10,2,w{number},agent,s{step},{f's{step - 1}' if step else ''},"
        for number in range(count)
        for step in range(steps)
    ]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return str(path)


async def load(server: Server, trace: str, **wanted: object) -> LoadReport:
    spec = LoadSpec(url=server.url, trace=trace, timeout_s=20.0, **wanted)  # type: ignore[arg-type]
    return await LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=lambda _: None).run()


async def test_steps_follow_on_each_other_and_name_workflow_kind_and_parent(serve: Serve, tmp_path: Path) -> None:
    ended: list[str] = []

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        parent = request.headers.get("x-fleetctl-parent")
        assert parent is None or parent in ended, "sent before the one it waits for had ended"
        response = await answer_well(request, body, gap_s=0.001)
        ended.append(request.headers["x-request-id"])
        return response

    server = await serve(answer)
    report = await load(server, agents(tmp_path / "t.csv", 10), kinds=(AGENT,))
    (figures,) = report.workflows
    assert (figures.kind, figures.offered, figures.completed, figures.calls) == ("agent", 10, 10, 30)
    assert (figures.good, figures.good_share, figures.queued_share) == (10, 1.0, None)
    assert figures.elapsed.count == 10
    assert report.total.ok == 30
    assert Counter(each["x-fleetctl-workflow"] for each in server.headers) == {f"w{n}": 3 for n in range(10)}
    assert {each["x-fleetctl-workflow-kind"] for each in server.headers} == {"agent"}
    parents = {each["x-request-id"]: each.get("x-fleetctl-parent") for each in server.headers}
    assert parents["w3.s0"] is None
    assert parents["w3.s2"] == "w3.s1"


async def test_a_refused_call_is_sent_again_and_after_five_tries_its_workflow_fails(
    serve: Serve, tmp_path: Path
) -> None:
    tries: Counter[str] = Counter()

    async def refuse(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        name = request.headers["x-request-id"]
        tries[name] += 1
        if name == "w0.s1" or tries[name] == 1:
            return web.json_response({}, status=429, headers={"retry-after": "0"})
        return await answer_well(request, body)

    report = await load(await serve(refuse), agents(tmp_path / "t.csv", 2))
    (figures,) = report.workflows
    assert (figures.completed, figures.failed) == (1, {"refused": 1})
    assert tries["w0.s1"] == CALL_TRIES_MAX
    assert tries["w0.s2"] == 0
    assert [tries[f"w1.s{step}"] for step in range(3)] == [2, 2, 2]


async def test_a_failed_call_fails_its_workflow_and_a_run_that_ends_leaves_workflows_undecided(
    serve: Serve, tmp_path: Path
) -> None:
    async def fail(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.headers["x-request-id"] == "w0.s1":
            return web.json_response({}, status=500)
        if request.headers["x-request-id"] == "w1.s1":
            await asyncio.sleep(30)  # noqa: TID251  # longer than the run
        return await answer_well(request, body)

    server = await serve(fail)
    report = await load(server, agents(tmp_path / "t.csv", 2), drain_timeout_s=0.5)
    (figures,) = report.workflows
    assert (figures.offered, figures.completed, figures.failed, figures.undecided) == (2, 0, {"http-500": 1}, 1)
    sent = {each["x-request-id"] for each in server.headers}
    assert sent == {"w0.s0", "w0.s1", "w1.s0", "w1.s1"}


async def test_a_thinking_call_is_no_request_in_flight_and_is_not_sent_once_the_run_is_stopped(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}\n0,10,2,w,,a,,\n0,10,2,w,,b,a,30\n0.2,10,2,,,,,\n")
    server = await serve(answer_well)
    report = await load(server, str(path), drain_timeout_s=0.3)
    assert report.workflows[0].undecided == 1
    assert report.generator.sent == 2
    assert report.unfinished == 0
