"""The gateway's /metrics is what Prometheus reads, and agrees with the snapshot."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from fleetctl import codec
from fleetctl.model.gateway import GatewaySnapshot
from fleetctl.model.slo import BreachKind
from tests.gateway.rig import CHAT, GatewayRig
from tests.gateway.scripted import answers, rejects


def families(page: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        sample.name: {tuple(s.labels.values()): s.value for s in family.samples if s.name == sample.name}
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


async def test_prometheus_reads_it_and_it_agrees_with_the_snapshot():
    async with GatewayRig(lanes=(replace(CHAT, queue_max=1),)) as rig:
        await rig.add("r1", answers(["a", "b", "c"], gap_s=0.05), concurrency_max=1)
        await asyncio.gather(*(rig.post(stream=True) for _ in range(4)))
        rig.replicas[0].script = rejects(500)
        await rig.post()
        page = families((await rig.get("/metrics")).body)
        snapshot = codec.decode(GatewaySnapshot, codec.encode(rig.frontend.snapshot(1)))
        window = snapshot.lanes[0].window(60.0)
        prefix = "fleetctl_gateway_"
        assert page[prefix + "requests_total"] == {("rig", "chat", "complete"): 2.0, ("rig", "chat", "error"): 1.0}
        assert page[prefix + "shed_total"] == {("rig", "chat", "queue-full"): float(window.shed["queue-full"])}
        breaches = {kind: count for (_, _, kind), count in page[prefix + "breaches_total"].items()}
        assert breaches == {kind.value: 0.0 for kind in BreachKind} | {"error": 1.0, "refused": 2.0}
        assert window.missed == 3
        assert page[prefix + "tokens_total"]["rig", "chat", "output"] == window.output_tokens == 6
        assert page[prefix + "ttft_seconds_count"]["rig", "chat"] == window.ttft.count == 2
        assert page[prefix + "replica_failures_total"]["rig", "r1", "chat"] == snapshot.replicas[0].failures == 1
        buckets = [v for k, v in page[prefix + "itl_seconds_bucket"].items() if k[1] == "chat"]
        assert buckets == sorted(buckets)
        assert buckets[-1] == window.itl.count == 4


async def test_how_evenly_answers_stream_is_told_by_lane_and_replica():
    async with GatewayRig() as rig:
        await rig.add("r1", answers(["a", "b", "c"], gap_s=0.02))
        for _ in range(2):
            await rig.post(stream=True)
        page = families((await rig.get("/metrics")).body)
        lane = codec.decode(GatewaySnapshot, codec.encode(rig.frontend.snapshot(1))).lanes[0]
        window, prefix = lane.window(60.0), "fleetctl_gateway_stream_"
        of_replica = "rig", "chat", "r1"
        assert page[prefix + "answers_total"] == {of_replica: 2.0}
        assert page[prefix + "stalls_total"] == page[prefix + "stalled_answers_total"] == {of_replica: 0.0}
        assert page[prefix + "chunks_total"][of_replica] == window.streams.chunks == 6
        assert page[prefix + "tokens_total"][of_replica] == window.streams.tokens == 6
        assert page[prefix + "gap_seconds_count"]["rig", "chat"] == window.streams.gap.count == 4
        assert page[prefix + "gap_recent_seconds"][*of_replica, "0.99"] == lane.replica_streams["r1"].gap.p99_s
        assert page[prefix + "stall_limit_seconds"] == {("rig", "chat"): 0.5}
