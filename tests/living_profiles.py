"""Profiles of small fleets that are brought up for real, of emulated engines on this machine."""

from __future__ import annotations

_PROFILE = """\
apiVersion: fleetctl/v1
name: {name}
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{flavour: vllm, startup: 200ms, speed: 4}}
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 200, p99: 900}}, output_tokens: {{p50: 40, p99: 120}}}}
slo: {{objective: 99%, window: 7d}}
lanes: {lanes}
capacity: {{gpus: [L40S], max_nodes: 8}}
gateway: {{host: 127.0.0.1, port: {port}}}
"""
_ONE_LANE = "{short: {slo: {ttft: {p99: 5s}, itl: {p99: 1s}}, max_wait: 20s, replicas: {min: 2, max: 2}, spot: none}}"
_TWO_LANES = """
  short:
    match: {uncached_prompt_tokens: "< 512"}
    slo: {ttft: {p99: 2s}, itl: {p99: 500ms}}
    max_wait: 20s
    replicas: {min: 2, max: 3}
    spot: none
  long:
    slo: {ttft: {p99: 5s}, itl: {p99: 500ms}}
    max_wait: 20s
    replicas: {min: 2, max: 3}
    spot: burst"""


def one_lane_profile(name: str, *, port: int) -> str:
    """Return a fleet of one lane of two replicas, neither more nor less."""
    return _PROFILE.format(name=name, port=port, lanes=_ONE_LANE)


def two_lanes_profile(name: str, *, port: int) -> str:
    """Return a fleet of two lanes of two or three replicas each, the second on spot where it bursts."""
    return _PROFILE.format(name=name, port=port, lanes=_TWO_LANES)
