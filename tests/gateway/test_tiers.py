"""Tiers at the public port: whose key has which, who may name one, and what a client sees of it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fleetctl.core.diagnosis.request import explain_request
from fleetctl.model.generation import GenerationSpec
from fleetctl.model.ladder import LadderStep
from fleetctl.model.request_trace import TraceQuery
from fleetctl.model.tiers import TierSpec, route_tiers
from tests.gateway.rig import GatewayRig, until
from tests.gateway.scripted import Script, Seen, Wire, completion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ACME, TRIAL, PLAIN = "a" * 40, "t" * 40, "p" * 40
TIERS = (
    TierSpec(name="premium", weight=6, floor=0.2),
    TierSpec(name="free", floor=0.05, generation=GenerationSpec(max_tokens=50)),
)


def hashed(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


@asynccontextmanager
async def tiered(script: Script | None = None, *, slots: int = 8, **options: Any) -> AsyncIterator[GatewayRig]:
    async with GatewayRig() as rig:
        rig.options |= {
            "tiers": route_tiers(TIERS),
            "api_key_hashes": (hashed(ACME), hashed(TRIAL), hashed(PLAIN)),
            "key_names": {hashed(ACME): "acme"},
            "key_tiers": {hashed(ACME): "premium", hashed(TRIAL): "free"},
            "tier_header": True,
        } | options
        await rig.add("r1", script, concurrency_max=slots)
        yield rig


async def tier_of(rig: GatewayRig, key: str, named: str | None = None) -> str:
    headers = {"authorization": f"Bearer {key}"} | ({"x-fleetctl-tier": named} if named is not None else {})
    answer = await rig.post(headers=headers)
    return (
        answer.headers["x-fleetctl-tier"]
        if answer.status == 200
        else f"{answer.status}: {answer.json['error']['message']}"
    )


async def test_a_request_has_its_keys_tier_or_a_lower_one_that_it_names() -> None:
    async with tiered() as rig:
        assert await tier_of(rig, ACME) == "premium"
        assert await tier_of(rig, ACME, "free") == "free"
        assert await tier_of(rig, ACME, "") == "premium"  # which names none
        assert await tier_of(rig, TRIAL, "premium") == "free"
        assert await tier_of(rig, PLAIN) == "free"  # its lane names none: the lowest
        assert await tier_of(rig, PLAIN, "premium") == "free"
        assert await tier_of(rig, ACME, "gold") == "400: there is no tier 'gold'; there are: premium, free"
        rig.change_lane("chat", tier="premium")
        assert await tier_of(rig, PLAIN) == "premium"
        assert await tier_of(rig, TRIAL) == "free"


async def test_a_header_is_not_heard_where_the_profile_does_not_say_so_and_reaches_no_replica() -> None:
    async with tiered(tier_header=False) as rig:
        assert await tier_of(rig, ACME, "free") == "premium"
        [replica] = rig.replicas
        assert all(b"x-fleetctl-tier" not in bytes(str(seen.headers), "ascii").lower() for seen in replica.seen)


async def test_without_tiers_no_answer_names_one() -> None:
    async with tiered(tiers=(), key_tiers={}, tier_header=False) as rig:
        answer = await rig.post(headers={"authorization": f"Bearer {ACME}", "x-fleetctl-tier": "free"})
        assert answer.status == 200
        assert "x-fleetctl-tier" not in answer.headers


async def test_a_tiers_bounds_hold_beside_the_lanes() -> None:
    async with tiered() as rig:
        answer = await rig.post(headers={"authorization": f"Bearer {TRIAL}"}, max_tokens=900)
        assert answer.headers["x-fleetctl-limit"] == "max_tokens=50"
        answer = await rig.post(headers={"authorization": f"Bearer {ACME}"}, max_tokens=900)
        assert "x-fleetctl-limit" not in answer.headers


async def test_a_client_is_called_as_its_key_wherever_requests_are_shown() -> None:
    async with tiered() as rig:
        await tier_of(rig, ACME)
        await tier_of(rig, TRIAL)
        acme, trial = rig.frontend.ended.find(TraceQuery()).requests
        assert (acme.client, acme.tier) == ("acme", "premium")
        assert (len(trial.client), trial.tier) == (8, "free")
        assert [each.client for each in rig.frontend.ended.find(TraceQuery(client="acme")).requests] == ["acme"]


async def test_a_step_cuts_the_lowest_tier_first() -> None:
    async with tiered() as rig:
        rig.change_lane("chat", step=LadderStep.CAP_TOKENS, max_tokens_cap=7)
        answer = await rig.post(headers={"authorization": f"Bearer {TRIAL}"}, max_tokens=40)
        assert answer.headers["x-fleetctl-degraded"] == "max_tokens=7"
        answer = await rig.post(headers={"authorization": f"Bearer {ACME}"}, max_tokens=40)
        assert "x-fleetctl-degraded" not in answer.headers


async def test_a_retry_is_the_same_body_again_or_what_a_client_declares_and_fresh_requests_of_its_key_are_none() -> (
    None
):
    gate = asyncio.Event()

    async def slow(seen: Seen, wire: Wire) -> None:
        del seen
        await gate.wait()
        await wire.whole(200, completion("a"))

    tiers = route_tiers((TierSpec(name="premium"), TierSpec(name="free", retry_budget=0.0)))
    async with tiered(slow, slots=1, tiers=tiers) as rig:
        rig.change_lane("chat", queue_max=1)
        free = {"authorization": f"Bearer {TRIAL}"}

        async def reason(seed: int, **headers: str) -> str:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = await rig.post(headers=free | sent, seed=seed)
            return f"{answer.status} {answer.headers.get('x-fleetctl-reason', '')}"

        held = [asyncio.create_task(rig.post(headers=free, seed=seed)) for seed in (1, 2)]
        lane = rig.frontend.dispatcher.routes.lanes["chat"]
        await until(lambda: len(lane.queue) == 1)
        fresh = [await reason(seed, x_stainless_retry_count="0") for seed in range(3, 13)]
        assert set(fresh) == {"429 queue-full"}
        assert await reason(3) == "429 retry-budget"
        assert await reason(20, x_stainless_retry_count="1") == "429 retry-budget"
        gate.set()
        assert [each.status for each in await asyncio.gather(*held)] == [200, 200]


async def test_who_is_refused_for_its_tier_can_read_why_and_is_counted_there() -> None:
    gate = asyncio.Event()

    async def slow(seen: Seen, wire: Wire) -> None:
        del seen
        await gate.wait()
        await wire.whole(200, completion("a"))

    async with tiered(slow, slots=1) as rig:
        rig.change_lane("chat", queue_max=4)
        free = {"authorization": f"Bearer {TRIAL}"}
        waiting = [asyncio.create_task(rig.post(headers=free)) for _ in range(5)]
        lane = rig.frontend.dispatcher.routes.lanes["chat"]
        await until(lambda: len(lane.queue) == 4)
        premium = asyncio.create_task(rig.post(headers={"authorization": f"Bearer {ACME}"}))
        await until(lambda: any(task.done() for task in waiting))
        [refused] = [task.result() for task in waiting if task.done()]
        assert (refused.status, refused.headers["x-fleetctl-reason"]) == (429, "tier-share")
        assert float(refused.headers["retry-after-ms"]) > 0
        [trace] = rig.frontend.ended.find(TraceQuery(is_missed=True)).requests
        assert trace.tier == "free"
        assert "premium goes first" in " ".join(explain_request(trace).steps)
        gate.set()
        assert (await premium).status == 200
        await asyncio.gather(*waiting)
        [chat] = [each for each in rig.frontend.snapshot(1).lanes if each.name == "chat"]
        windows = {tier.name: tier.windows[-1] for tier in chat.tiers}
        assert (windows["premium"].offered, windows["premium"].good) == (1, 1)
        assert (windows["free"].offered, windows["free"].good, windows["free"].refused) == (5, 4, {"tier-share": 1})
        assert sum(each.served_tokens for each in windows.values()) > 0


async def test_the_metrics_page_has_each_tiers_figures_and_each_named_clients() -> None:
    async with tiered() as rig:
        for key in (ACME, ACME, TRIAL):
            assert await tier_of(rig, key)
        page = (await rig.get("/metrics")).body.decode()
        for line in (
            'fleetctl_gateway_tier_offered_total{fleet="test",lane="chat",tier="premium"} 2',
            'fleetctl_gateway_tier_good_total{fleet="test",lane="chat",tier="free"} 1',
            'fleetctl_gateway_client_requests_total{fleet="test",client="acme",verdict="good"} 2',
        ):
            assert line.partition("{")[0] in page
            assert re.search(re.escape(line.partition("{")[0]) + r"\{[^}]*\} " + line.rsplit(" ", 1)[1], page)
        assert "# HELP fleetctl_gateway_tier_token_share Share of the lane's tokens" in page
        assert page.count("client=") == page.count('client="acme"')


async def test_what_a_renamed_tier_counted_stays_on_the_metrics_page_and_nothing_is_due_to_it() -> None:
    async with tiered() as rig:
        assert await tier_of(rig, TRIAL) == "free"
        rig.apply(tiers=route_tiers((TIERS[0], TierSpec(name="bronze"))), key_tiers={hashed(TRIAL): "bronze"})
        assert await tier_of(rig, TRIAL) == "bronze"
        page = (await rig.get("/metrics")).body.decode()
        for tier in ("free", "bronze"):
            assert f'fleetctl_gateway_tier_good_total{{fleet="rig",lane="chat",tier="{tier}"}} 1' in page
        assert 'tier_due_share{fleet="rig",lane="chat",tier="bronze"}' in page
        assert 'tier_due_share{fleet="rig",lane="chat",tier="free"}' not in page


async def test_without_tiers_and_names_the_metrics_page_has_none() -> None:
    async with tiered(tiers=(), key_tiers={}, key_names={}, tier_header=False) as rig:
        await rig.post(headers={"authorization": f"Bearer {ACME}"})
        page = (await rig.get("/metrics")).body.decode()
        assert "_tier_" not in page
        assert "client=" not in page
