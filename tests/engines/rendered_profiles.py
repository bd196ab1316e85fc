"""Ten profiles, rendered for an engine: the packaged ones, and three that use what those leave to the plan."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import TYPE_CHECKING

from fleetctl.config.profile import parse_profile
from fleetctl.config.use_cases import use_cases
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import find_profile
from fleetctl.operations.rendering import render
from tests.sites import plugins_site

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile

MIXTURE = "mixture"  # the one whose model has experts
_HEAD = """
apiVersion: fleetctl/v1
name: %s
engine: emulator
provider: local
slo: {objective: 99.5%%, window: 7d}
workload: {peak_rps: 4, prompt_tokens: {p50: 800, p99: 6000}, output_tokens: {p50: 150, p99: 600}}
"""
_OWN = {
    MIXTURE: """
model: {id: openai/gpt-oss-120b}
capacity: {gpus: [H100], max_nodes: 8}
tiers: {premium: {weight: 3}, standard: {weight: 1}}
lanes:
  chat: {slo: {ttft: {p99: 2s}, itl: {p99: 100ms}}, max_wait: 1s, launch: {tensor_parallel: 8}}
""",
    "code-edits": """
model: {id: Qwen/Qwen2.5-72B-Instruct, quantization: fp8}
capacity: {gpus: [H100, H200], max_nodes: 8}
lanes:
  edits:
    slo: {ttft: {p99: 1s}, itl: {p99: 60ms}}
    max_wait: 1s
    launch: {speculation: {method: ngram, tokens: 5}, max_queued_requests: 500, gpu_memory_utilization: 0.85}
""",
    "thinker": """
model: {id: Qwen/Qwen3-32B}
capacity: {gpus: [H100], max_nodes: 16}
lanes:
  talk: {match: {uncached_prompt_tokens: "< 1000", stream: true}, slo: {ttft: {p99: 1s}, itl: {p99: 80ms}}, max_wait: 1s}
  work: {slo: {completion: {p95: 1h}}, max_wait: 10m, launch: {max_num_seqs: 300, max_model_len: 16384}}
""",
}


def profiles() -> dict[str, Profile]:
    """Return them by name."""
    own = {name: parse_profile(_HEAD % name + text, source=name) for name, text in _OWN.items()}
    return {name: find_profile(name) for name in use_cases()} | own


@cache
def plans() -> dict[str, Plan]:
    """Return the plan of each, made once."""
    site = plugins_site()
    return {name: asyncio.run(plan_profile(site, profile, is_for_files=True)) for name, profile in profiles().items()}


def rendered(engine: str) -> dict[str, tuple[str, ...]]:
    """Return the command line of every lane of every profile, by "profile/lane"."""
    site, found = plugins_site(), {}
    for name, profile in profiles().items():
        for path, text in render(site, profile, plans()[name], engine=engine).items():
            if path.endswith("launch.json"):
                found[f"{name}/{path.removesuffix('/launch.json')}"] = tuple(json.loads(text)["argv"])
    return found
