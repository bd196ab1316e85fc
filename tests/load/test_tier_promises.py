"""Over real sockets: a tier's requests are held to what the gateway holds them to, and promises that were missed fail the check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from fleetctl.cli.load_view import load_view
from fleetctl.cli.output import Format, text_of
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import SloBreachError
from fleetctl.load.report import LoadReport, LoadSpec
from fleetctl.load.worker import LoadRun
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.tiers import TierSpec
from fleetctl.model.verdict import Compliance
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind
from fleetctl.operations.traffic import LoadVerdict, check_slo
from tests.load.conftest import event, token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.load.conftest import Behaviour, Server

    Serve = Callable[[Behaviour], Awaitable[Server]]

NEVER_S, ALWAYS_S = 1e-6, 3600.0  # no answer is as fast, and none so slow


def ttft(limit_s: float) -> LaneSlo:
    return LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=limit_s),))


def tiers(gold_s: float, free_s: float) -> tuple[TierSpec, ...]:
    return TierSpec(name="gold", slo=ttft(gold_s)), TierSpec(name="plain"), TierSpec(name="free", slo=ttft(free_s))


async def answer(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    """Answer as a gateway does that gives the client acme gold, and everybody else what they name, or plain."""
    given = "gold" if "acme" in request.headers.get("authorization", "") else "plain"
    headers = {
        "content-type": "text/event-stream",
        "x-fleetctl-lane": "short",
        "x-fleetctl-tier": request.headers.get("x-fleetctl-tier", given),
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(token() + event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}))
    await response.write(b"data: [DONE]\n\n")
    return response


def trace(path: Path, *rows: str) -> str:
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,client,tier", *rows]) + "\n")
    return str(path)


async def load(server: Server, trace: str, **wanted: object) -> LoadReport:
    spec = LoadSpec(url=server.url, trace=trace, timeout_s=20.0, **wanted)  # type: ignore[arg-type]
    return await LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=lambda _: None).run()


@pytest.fixture(autouse=True)
def acme_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME", "sk-acme")
    monkeypatch.setenv("REST", "sk-rest")


KEYS = {"keys": {"acme": "env:ACME"}, "api_key": "env:REST"}
ROWS = [f"0,20,1,{client},{tier}" for client, tier in (("acme", ""), ("x", ""), ("y", "free")) for _ in range(20)]


@pytest.mark.parametrize(
    ("lane_s", "gold_s", "free_s", "good"),
    [
        (ALWAYS_S, NEVER_S, ALWAYS_S, {"gold": 0, "plain": 20, "free": 20}),
        (NEVER_S, ALWAYS_S, ALWAYS_S, {"gold": 20, "plain": 0, "free": 20}),
        (ALWAYS_S, ALWAYS_S, NEVER_S, {"gold": 20, "plain": 20, "free": 0}),
    ],
)
async def test_each_request_is_held_to_what_its_lane_promises_to_its_tier(
    serve: Serve, tmp_path: Path, lane_s: float, gold_s: float, free_s: float, good: dict[str, int]
) -> None:
    report = await load(
        await serve(answer), trace(tmp_path / "t.csv", *ROWS), tiers=tiers(gold_s, free_s), slos={"short": ttft(lane_s)}, **KEYS
    )  # fmt: skip

    assert {each.name: each.good for each in report.tiers} == good
    (lane,) = report.lanes
    assert (lane.requests, lane.good) == (60, sum(good.values()))
    assert lane.attainment == pytest.approx(sum(good.values()) / 60)


async def test_a_tier_that_misses_its_own_slo_fails_the_check_by_name_and_its_limit_is_shown(
    serve: Serve, tmp_path: Path
) -> None:
    slos = {"short": ttft(ALWAYS_S)}
    report = await load(
        await serve(answer), trace(tmp_path / "t.csv", *ROWS), tiers=tiers(NEVER_S, ALWAYS_S), slos=slos, objective=0.5, **KEYS
    )  # fmt: skip

    assert report.total.verdict.compliance is Compliance.KEPT, "on average the lane is well"
    assert LoadVerdict(report=report).compliance is Compliance.MISSED
    gold, plain, free = report.tiers
    assert [(each.name, each.compliance, each.missed, each.samples) for each in gold.promises] == [
        ("good requests", Compliance.MISSED, 20, 20),
        ("ttft P99", Compliance.MISSED, 20, 20),
    ]
    assert plain.promises == (), "it has what its lanes promise"
    assert {each.compliance for each in free.promises} == {Compliance.KEPT}
    with pytest.raises(SloBreachError, match=r"^tier gold: MISSED good requests 0% of 50% \(0 of 20\); ttft P99 ~"):
        check_slo(report)
    shown = text_of(load_view(report, slos), Format.TABLE)
    rows = {cells[0]: cells for line in shown.splitlines() if (cells := line.split())[:1] != []}
    assert rows["gold"][2] == "0%/50%"
    assert rows["gold"][-2].startswith("~")
    assert rows["gold"][-2].endswith("/1us"), "measured, on few, beside what is promised"
    assert rows["gold"][-1] == "MISSED"
    assert rows["free"][-1] == "~kept"
    assert rows["plain"][-1] == "-"
    assert "tier gold: MISSED" in shown


async def test_what_is_refused_before_it_has_a_tier_counts_for_its_keys(serve: Serve, tmp_path: Path) -> None:
    async def refuse(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({}, status=429, headers={"x-fleetctl-reason": "stopping"})

    rows = ["0,20,1,acme,", "0,20,1,acme,free", "0,20,1,low,gold", "0,20,1,x,"]
    keys = {"keys": {"acme": "env:ACME", "low": "env:REST"}, "key_tiers": {"env:ACME": "gold", "env:REST": "free"}}
    report = await load(
        await serve(refuse), trace(tmp_path / "t.csv", *rows), tiers=tiers(1.0, 1.0), slos={"short": ttft(1.0)}, **keys
    )  # fmt: skip

    assert {each.name: (each.offered, each.refusals) for each in report.tiers} == {
        "gold": (1, 1),
        "free": (2, 2),
        "": (1, 1),
    }


@pytest.mark.parametrize(("limit_s", "compliance"), [(NEVER_S, Compliance.MISSED), (ALWAYS_S, Compliance.KEPT)])
async def test_a_kind_of_workflows_is_held_to_its_promise(
    serve: Serve, tmp_path: Path, limit_s: float, compliance: Compliance
) -> None:
    path = tmp_path / "t.csv"
    rows = [f"0,10,1,w{number},agent,{step}" for number in range(6) for step in "ab"]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,workflow,kind,id", *rows]) + "\n")
    targets = (ElapsedTarget(percentile=0.5, limit_s=ALWAYS_S), ElapsedTarget(percentile=0.99, limit_s=limit_s))
    kinds, slos = (WorkflowKind(name="agent", targets=targets),), {"short": ttft(ALWAYS_S)}
    report = await load(await serve(answer), str(path), kinds=kinds, slos=slos)

    assert report.total.verdict.compliance is Compliance.KEPT
    assert [each.compliance for each in report.workflows[0].promises] == [Compliance.KEPT, compliance]
    shown = text_of(load_view(report, slos), Format.TABLE)
    if compliance is Compliance.KEPT:
        check_slo(report)
        return
    assert "/1us" in shown
    with pytest.raises(
        SloBreachError, match=r"workflows agent: MISSED elapsed P99 ~.* of 1us \(6 of 6 late or failed\)"
    ):
        check_slo(report)
