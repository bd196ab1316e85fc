"""What a load at a fleet takes of its profile: whose key each request has, and what it is held to."""

from __future__ import annotations

from fleetctl.config.profile import parse_profile
from fleetctl.model.slo import Metric
from fleetctl.operations.traffic import fleet_spec

PROFILE = """
apiVersion: fleetctl/v1
name: tiered
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
provider: local
workload: {peak_rps: 3, prompt_tokens: {p50: 1020, p99: 4142}, output_tokens: {p50: 129, p99: 601}}
tiers: {gold: {slo: {ttft: {p99: 1s}}}, tin: {}}
workflows: {kinds: {agent: {slo: {p50: 10s, p99: 30s}}, other: {}}}
lanes: {all: {slo: {ttft: {p99: 2s}, itl: {p99: 80ms}}, coalesce: {tokens: 4, within: 60ms}, max_wait: 2s, replicas: 1}}
capacity: {gpus: [L40S], max_nodes: 1}
gateway: {api_keys: KEYS}
"""


def test_requests_of_nobody_known_are_sent_with_a_key_that_is_nobodys():
    for keys, nobodys in (
        ("[{key: env:ACME, name: acme, tier: gold}, env:PLAIN, env:OTHER]", "env:PLAIN"),
        ("[{key: env:ACME, name: acme, tier: gold}, {key: env:BETA, name: beta}]", "env:ACME"),
        ("[]", ""),
    ):
        spec = fleet_spec(parse_profile(PROFILE.replace("KEYS", keys), source="tiered"))
        assert spec.api_key == nobodys
        assert spec.keys.get("acme", "env:ACME") == "env:ACME"


def test_tiers_and_kinds_go_along_with_what_is_promised_to_them():
    keys = "[{key: env:ACME, name: acme, tier: gold}]"
    spec = fleet_spec(parse_profile(PROFILE.replace("KEYS", keys), source="tiered"))
    assert [(tier.name, [target.name for target in tier.slo.targets]) for tier in spec.tiers] == [
        ("gold", ["ttft P99"]),
        ("tin", []),
    ]
    assert spec.key_tiers == {"env:ACME": "gold"}
    assert [(kind.name, kind.limit_s) for kind in spec.kinds] == [("agent", 30.0), ("other", None)]
    assert {target.metric for target in spec.slos["all"].targets} == {Metric.TTFT}, (
        "tokens do not come as engines make them"
    )
