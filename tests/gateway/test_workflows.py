"""Calls that belong together, seen as one by a gateway with real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.admission.keys import sha256_hash
from fleetctl.model.request_trace import TraceQuery
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind, WorkflowsSpec
from tests.gateway.rig import GatewayRig, until
from tests.gateway.scripted import answers, hangs, rejects

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionUserMessageParam

    from fleetctl.model.workflow_figures import WorkflowSnapshot
    from fleetctl.model.workflow_trace import WorkflowTrace

MESSAGES: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hi"}]
KIND = WorkflowKind(name="agent", steps=2, targets=(ElapsedTarget(percentile=0.99, limit_s=30.0),), lane="chat")
SPEC = WorkflowsSpec(idle_s=1.0, kinds=(KIND,))
TRACE = "0af7651916cd43dd8448eb211c80319c"


def traceparent(trace: str = TRACE, span: str = "b7ad6b7169203331") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{span}-01"}


def found(rig: GatewayRig, id_: str) -> tuple[WorkflowTrace, ...]:
    return rig.frontend.ended.find(TraceQuery(id=id_)).workflows


def snapshot(rig: GatewayRig) -> WorkflowSnapshot:
    seen = rig.frontend.snapshot(1).workflows
    assert seen is not None
    return seen


@pytest.fixture
async def rig():
    async with GatewayRig(options={"workflows": SPEC}) as made:
        yield made


async def test_calls_with_one_id_are_one_workflow_and_their_tree_is_drawn_by_time(rig):
    await rig.add("r1", answers(["a", "b"], gap_s=0.02, usage=True))
    named = {"x-fleetctl-workflow": "order-7"}
    await rig.post(headers=named, stream=True)
    await asyncio.gather(*(rig.post(headers=named, stream=True) for _ in range(3)))
    [seen] = found(rig, "order-7")
    assert (seen.kind, seen.calls_begun, seen.calls_running, seen.depth, seen.fan_out) == ("agent", 4, 0, 2, 3)
    assert [call.before for call in seen.calls] == [None, 0, 0, 0]
    assert {call.replica for call in seen.calls} == {"r1"}
    assert {call.ending for call in seen.calls} == {"complete"}
    assert all(call.output_tokens > 0 and call.prompt_tokens > 0 for call in seen.calls)
    assert all(call.ttft_s is not None and call.ttft_s < call.total_s for call in seen.calls)
    assert seen.replica_s + seen.queue_s + seen.client_s == pytest.approx(seen.elapsed_s)
    assert sum(call.is_on_path for call in seen.calls) == 2
    assert seen.verdict == ""
    requests = rig.frontend.ended.find(TraceQuery(workflow="order-7")).requests
    assert [trace.workflow for trace in requests] == ["order-7"] * 4
    assert {trace.id for trace in requests} == {call.request_id for call in seen.calls}


async def test_a_workflow_names_its_client_as_requests_do_by_the_keys_name_or_else_by_digits():
    keys = {"acme": "a" * 40, "": "p" * 40}
    options = {
        "workflows": SPEC,
        "api_key_hashes": tuple(sha256_hash(key) for key in keys.values()),
        "key_names": {sha256_hash(keys["acme"]): "acme"},
    }
    async with GatewayRig(options=options) as rig:
        await rig.add("r1")
        for key in keys.values():
            await rig.post(headers={"x-fleetctl-workflow": "order-7", "authorization": f"Bearer {key}"})
        clients = [each.client for each in found(rig, "order-7")]
        assert clients == [trace.client for trace in rig.frontend.ended.find(TraceQuery(workflow="order-7")).requests]
        assert clients[0] == "acme"
        assert len(clients[1]) == 8


async def test_a_workflow_is_over_and_counted_once_it_is_idle(rig):
    await rig.add("r1")
    rig.apply(workflows=WorkflowsSpec(idle_s=0.05, kinds=SPEC.kinds))
    await rig.post(headers={"x-fleetctl-workflow": "one"})
    await until(lambda: snapshot(rig).kinds[0].window(300.0).ended)
    assert found(rig, "one")[0].verdict == "good"
    assert snapshot(rig).kinds[0].running == 0
    page = (await rig.get("/metrics")).body.decode()
    assert 'fleetctl_gateway_workflows_ended_total{fleet="rig",kind="agent",verdict="good"} 1' in page
    assert 'fleetctl_gateway_workflow_elapsed_seconds_count{fleet="rig",kind="agent"} 1' in page
    assert 'fleetctl_gateway_workflow_elapsed_limit_seconds{fleet="rig",kind="agent",quantile="0.99"} 30' in page
    assert 'fleetctl_gateway_workflows_running{fleet="rig",kind="(other)"} 0' in page


async def test_a_trace_id_joins_calls_and_one_alone_is_no_workflow(rig):
    await rig.add("r1")
    rig.apply(workflows=WorkflowsSpec(idle_s=0.05, kinds=SPEC.kinds))
    await rig.post(headers=traceparent())
    await rig.post(headers=traceparent(span="b7ad6b7169203332"))
    await rig.post(headers=traceparent("1" * 32))
    await until(lambda: snapshot(rig).singles)
    await until(lambda: snapshot(rig).kinds[0].window(300.0).ended)
    assert found(rig, TRACE)[0].calls_begun == 2
    assert snapshot(rig).singles == 1
    assert snapshot(rig).kinds[0].window(300.0).calls == 2


async def test_the_trace_id_that_the_standard_calls_invalid_joins_nothing(rig):
    await rig.add("r1")
    await rig.post(headers=traceparent("0" * 32))
    await rig.post(headers={"traceparent": "00-nonsense"})
    assert list(rig.frontend.ended.workflows.tracker.running()) == []


async def test_a_named_workflow_is_preferred_to_a_trace_and_may_name_its_kind_and_its_calls(rig):
    await rig.add("r1")
    rig.apply(workflows=WorkflowsSpec(kinds=(WorkflowKind(name="other", lane="chat"), KIND)))
    own = traceparent() | {"x-fleetctl-workflow": "mine", "x-fleetctl-workflow-kind": "agent"}
    await rig.post(headers=own | {"x-request-id": "first"})
    await rig.post(headers=own | {"x-request-id": "second"})
    await rig.post(headers=own | {"x-request-id": "third", "x-fleetctl-parent": "first"})
    [seen] = found(rig, "mine")
    assert (seen.kind, found(rig, TRACE)) == ("agent", ())
    assert [(call.before, call.is_named) for call in seen.calls] == [(None, False), (0, False), (0, True)]


async def test_headers_of_workflows_are_not_passed_on_to_replicas(rig):
    replica = await rig.add("r1")
    headers = {"x-fleetctl-workflow": "w", "x-fleetctl-workflow-kind": "agent", "x-fleetctl-parent": "p", "x-mine": "1"}
    await rig.post(headers=headers)
    sent = {name.lower() for name in replica.seen[0].headers}
    assert "x-mine" in sent
    assert not {name for name in sent if name.startswith("x-fleetctl")}


@pytest.mark.parametrize("odd", ["a b", "x" * 129, "ü", "", "a;b", "x" * 8000])
async def test_an_id_that_no_log_line_may_hold_joins_nothing_and_its_request_is_served(rig, odd):
    await rig.add("r1")
    for _ in range(2):
        assert (await rig.post(headers={"x-fleetctl-workflow": odd})).status == 200
    assert snapshot(rig).unlawful_ids == 2
    assert list(rig.frontend.ended.workflows.tracker.running()) == []


async def test_two_keys_with_one_id_are_two_workflows(rig):
    await rig.add("r1")
    rig.apply(api_key_hashes=(sha256_hash("sk-one"), sha256_hash("sk-two")))
    for key in ("sk-one", "sk-two", "sk-one"):
        await rig.post(headers={"authorization": f"Bearer {key}", "x-fleetctl-workflow": "same"})
    seen = found(rig, "same")
    assert sorted(each.calls_begun for each in seen) == [1, 2]
    assert len({each.client for each in seen}) == 2


async def test_a_call_that_fails_is_made_up_for_by_a_repeat_of_it(rig):
    replica = await rig.add("r1", rejects(500))
    named = {"x-fleetctl-workflow": "w"}
    assert (await rig.post(headers=named, user="a")).status == 500
    replica.script = answers(["ok"])
    await rig.post(headers=named, user="b")
    workflow = next(rig.frontend.ended.workflows.tracker.running())
    assert workflow.is_failed
    await rig.post(headers=named, user="a")
    assert not workflow.is_failed
    [seen] = found(rig, "w")
    assert [(call.ending, call.is_repaired) for call in seen.calls] == [
        ("error", True), ("complete", False), ("complete", False),
    ]  # fmt: skip


async def test_a_workflow_is_seen_while_its_call_runs(rig):
    await rig.add("r1", hangs)
    waiting = asyncio.create_task(rig.post(headers={"x-fleetctl-workflow": "slow"}))
    await until(lambda: found(rig, "slow") and found(rig, "slow")[0].calls[0].replica)
    [seen] = found(rig, "slow")
    assert (seen.calls_running, seen.verdict, seen.calls[0].ending) == (1, "", "")
    before_s = seen.elapsed_s
    await SYSTEM_CLOCK.sleep(0.02)
    assert found(rig, "slow")[0].elapsed_s > before_s
    waiting.cancel()
    await until(lambda: not found(rig, "slow")[0].calls_running)
    assert found(rig, "slow")[0].calls[0].ending == "cancelled"


async def test_a_profile_without_workflows_keeps_none_and_forgets_those_it_had(rig):
    await rig.add("r1", hangs)
    waiting = asyncio.create_task(rig.post(headers={"x-fleetctl-workflow": "slow"}))
    await until(lambda: found(rig, "slow"))
    rig.apply(workflows=None)
    assert rig.frontend.snapshot(1).workflows is None
    assert found(rig, "slow") == ()
    waiting.cancel()
    await until(lambda: not rig.frontend.is_busy)
    assert b"workflow" not in (await rig.get("/metrics")).body


async def test_the_official_client_joins_its_calls_by_extra_headers(rig):
    await rig.add("r1", answers(["Hel", "lo"], usage=True))
    named = {"x-fleetctl-workflow": "run-1", "x-fleetctl-workflow-kind": "agent"}
    async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="x", max_retries=0) as client:
        for _ in range(2):
            await client.chat.completions.create(model="m", messages=MESSAGES, extra_headers=named)
        pieces = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True, extra_headers=named)
        assert [piece async for piece in pieces]
    await until(lambda: not found(rig, "run-1")[0].calls_running)
    [seen] = found(rig, "run-1")
    assert (seen.kind, seen.calls_begun, seen.depth) == ("agent", 3, 3)


async def test_the_official_client_repeats_by_itself_what_was_refused(rig):
    replica = await rig.add("r1", rejects(503))
    async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="x", max_retries=3) as client:
        sent = asyncio.create_task(
            client.chat.completions.create(model="m", messages=MESSAGES, extra_headers={"x-fleetctl-workflow": "again"})
        )
        await until(lambda: found(rig, "again") and found(rig, "again")[0].calls_unanswered)
        replica.script = answers(["ok"])
        await sent
    workflow = next(rig.frontend.ended.workflows.tracker.running())
    assert not workflow.is_failed
    assert workflow.answered == 1
    assert workflow.unanswered_calls >= 1
