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
_PLACED = """
apiVersion: fleetctl/v1
name: {name}
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{flavour: vllm, startup: {startup}, speed: 4}}
provider: {provider}
workload:
  peak_rps: 2
  prompt_tokens: {{p50: 300, p99: 2000}}
  output_tokens: {{{output_tokens}}}
lanes:
  {lane}:
    slo: {{ttft: {{p99: {ttft}}}, itl: {{p99: 90ms}}}}
    max_wait: 10s
    replicas: {{{replicas}}}
{keys}"""


def placed_profile(  # the keys of a profile, each named
    name: str,
    *,
    provider: str,
    keys: str,
    lane: str = "short",
    replicas: str = "min: 1, max: 3",
    ttft: str = "1s",
    output_tokens: str = "p50: 64, p99: 200",
    startup: str = "500ms",
) -> str:
    """Return a fleet of one lane at a provider; `keys` are the end of the lane and what follows it, as they stand."""
    return _PLACED.format(
        name=name, provider=provider, keys=keys, lane=lane, replicas=replicas, ttft=ttft,
        output_tokens=output_tokens, startup=startup,
    )  # fmt: skip


def one_lane_profile(name: str, *, port: int) -> str:
    """Return a fleet of one lane of two replicas, neither more nor less."""
    return _PROFILE.format(name=name, port=port, lanes=_ONE_LANE)


def two_lanes_profile(name: str, *, port: int) -> str:
    """Return a fleet of two lanes of two or three replicas each, the second on spot where it bursts."""
    return _PROFILE.format(name=name, port=port, lanes=_TWO_LANES)
