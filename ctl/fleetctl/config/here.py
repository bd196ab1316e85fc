"""The profile `init --here` writes: for the GPUs and engines of this machine, each choice with its reason beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetctl.model.catalogue import Precision
from fleetctl.units import format_bytes

_FETCH_BYTES_PER_S = 50e6  # a line of half a gigabit
_START_MIN, _START_STEP_MIN = 10, 10  # of a start whose weights are there


@dataclass(frozen=True, slots=True, kw_only=True)
class HereChoices:
    """What a machine has, and what is made of it."""

    gpu: str  # as the catalogue has it; empty: it has none of that name
    gpu_text: str  # the machine's GPUs in words: "2x H100, 79.6GiB each"
    engine: str
    executable: str  # empty: as it is found on the PATH
    engine_text: str  # why this engine, in words
    model: str
    precision: Precision
    model_text: str  # why this model, in words
    peak_rps: float
    two_lanes: bool
    replicas: int  # of one lane at most
    has_spare: bool  # there is a GPU that no lane has at first
    fetched_bytes: float  # of weights, that the first start gets from the hub


def here_profile(name: str, chosen: HereChoices) -> str:
    """Return the commented YAML."""
    executable = f", executable: {chosen.executable}" if chosen.executable else ""
    engine = f"{{kind: {chosen.engine}{executable}}}" if executable else chosen.engine
    gpus = f"gpus: [{chosen.gpu}], " if chosen.gpu else ""
    return f"""\
# {name}: written by `fleetctl init --here` for this machine: {chosen.gpu_text}.
#
#   fleetctl plan FILE     replicas, settings, forecast; refuses with figures what the GPUs do not hold
#   fleetctl up FILE       start it; each replica gets GPUs of its own
#   fleetctl top           watch it
apiVersion: fleetctl/v1
name: {name}

# {chosen.model_text}
# Gated models need `hf auth login`, or `launch: {{env: {{HF_TOKEN: env:HF_TOKEN}}}}` in each lane.
model: {{id: {chosen.model}, quantization: {chosen.precision.value}}}
# {chosen.engine_text}
engine: {engine}
provider: local           # processes on this machine

# The peak minute, over all lanes; lengths as in the public Azure conversation trace of 2023. Put yours here: `plan`
# says which rate these GPUs carry (KNEE RPS).
workload:
  peak_rps: {chosen.peak_rps:g}
  prompt_tokens: {{p50: 1020, p99: 4142}}
  output_tokens: {{p50: 129, p99: 601}}

slo: {{objective: 99%, window: 7d}}

{_lanes(chosen)}
# What is there may be used: a replica that finds no free GPU is not started, and says so. An hour of a GPU costs $0
# unless you say what it costs you: gpu_per_hour: $2.10.
capacity: {{{gpus}spot: none}}
{_control(chosen)}gateway: {{host: 127.0.0.1, port: 8080}}
"""


def _control(chosen: HereChoices) -> str:
    slow_s = chosen.fetched_bytes / _FETCH_BYTES_PER_S
    start_min = _START_STEP_MIN * math.ceil((_START_MIN + slow_s / 60) / _START_STEP_MIN)
    fetched = format_bytes(chosen.fetched_bytes)
    first = f"# The first start fetches {fetched} of weights where they are not on this machine yet: time for that at 50 MB/s."
    if chosen.has_spare:
        return f"{first}\ncontrol: {{start_timeout: {start_min}m}}\n"
    return f"""\
{first}
# No GPU is left to start a replacement on, so a changed profile stops a replica first: its lane serves nobody meanwhile.
control: {{start_timeout: {start_min}m, rollout: {{max_unavailable: 1}}}}
"""


def _lanes(chosen: HereChoices) -> str:
    if not chosen.two_lanes:
        return """\
# One GPU carries one engine, so there is one lane; with two, short prompts get replicas of their own.
lanes:
  all:
    slo: {ttft: {p99: 3s}, itl: {p99: 150ms}}
    max_wait: 10s
    replicas: {min: 1, max: 1}
"""
    return f"""\
# Short prompts get replicas of their own, so that no long one stands in front of them.
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 1024"}}
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 150ms}}}}
    max_wait: 5s
    replicas: {{min: 1, max: {chosen.replicas}}}
  long:                   # no match: takes everything else
    slo: {{ttft: {{p99: 5s}}, itl: {{p99: 150ms}}}}
    max_wait: 10s
    replicas: {{min: 1, max: {chosen.replicas}}}
"""
