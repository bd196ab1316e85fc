"""How long does a plan over every type of a cloud take? python -m tests.bench.plan_many_types --types FILE.csv

FILE has a row an instance type: type, gpu, gpus, gpu_mem_mib_each, ondemand_usd_h_us_east_1. Types without a whole GPU, a price, or with a GPU
that the catalogue does not know are left out, and counted. Plans 1,000 requests a second of conversation over all of them:
one lane of two models, three lanes, and three lanes that share limits and need the integer program. Prints CPU seconds.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.catalogue.known import resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.core.plan import search_fleet
from fleetctl.model.catalogue import Market, Offering
from fleetctl.solver import solve
from tests.bench.plan_search import RULES
from tests.plan.profiles import CATALOGUE

_ONE_LANE = """
lanes: {all: {slo: {ttft: {p99: 1s}, itl: {p99: 60ms}}, max_wait: 1s, replicas: {min: 1, max: 4000}, spot: none}}
capacity: {max_nodes: 8000}
"""
_THREE_LANES = """
lanes:
  short:
    match: {uncached_prompt_tokens: "< 512", stream: true}
    slo: {ttft: {p99: 300ms}, itl: {p99: 50ms}}
    max_wait: 200ms
    replicas: {min: 1, max: 4000}
  long: {slo: {ttft: {p99: 2s}, itl: {p99: 80ms}}, max_wait: 1s, replicas: {min: 1, max: 4000}}
  batch:
    match: {batch: true}
    slo: {completion: {p95: 4h}}
    max_wait: 30m
    interruptible: true
    replicas: {min: 1, max: 4000}
"""
_LIMITS = "{p5.4xlarge: 10, g6e.12xlarge: 5, g6.xlarge: 30, g7e.2xlarge: 3}"
_8B, _70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"
_CASES = {
    "one lane, 8B bf16": (_8B, "bf16", _ONE_LANE),
    "one lane, 70B fp8": (_70B, "fp8", _ONE_LANE),
    "three lanes, 8B bf16": (_8B, "bf16", _THREE_LANES + "capacity: {max_nodes: 8000}"),
    "three lanes that share limits": (_8B, "bf16", _THREE_LANES + f"capacity: {{max_nodes: 8000, limits: {_LIMITS}}}"),
}
_HEAD = """
apiVersion: fleetctl/v1
name: many
model: {{id: {model}, quantization: {precision}}}
engine: vllm
provider: local
workload: {{peak_rps: 1000, prompt_tokens: {{p50: 1020, p99: 4142}}, output_tokens: {{p50: 129, p99: 601}}, batch_share: 10%}}
"""


def _name(row: dict[str, str]) -> str:
    """Return a row's GPU as the catalogue has it: cards of several sizes by their memory."""
    if row["gpu"] not in ("A100", "V100"):
        return row["gpu"]
    return f"{row['gpu']}-{round(float(row['gpu_mem_mib_each']) / 1024)}GB"


def offered(path: Path) -> tuple[list[Offering], int]:
    """Return what a file of types comes to, and how many were left out."""
    known = {name.replace(" ", "").lower(): name for name in CATALOGUE.gpus} | {
        "rtxproserver6000": "RTX PRO 6000 Server"
    }
    found, left_out = [], 0
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            gpu, count, price = (
                known.get(_name(row).replace(" ", "").lower()),
                int(float(row["gpus"])),
                row["ondemand_usd_h_us_east_1"],
            )
            if gpu is None or count < 1 or not price:
                left_out += 1
                continue
            found.append(
                Offering(
                    provider="aws", instance_type=row["type"], gpu=gpu, gpu_count=count, region="us-east-1", zone="a",
                    market=Market.ON_DEMAND, boot_s=120.0, notice_s=0.0, price_usd_per_hour=float(price),
                    is_shareable=count > 1,
                )
            )  # fmt: skip
    return found, left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", type=Path, required=True)
    options = parser.parse_args()
    offerings, left_out = offered(options.types)
    print(f"{len(offerings)} types, {left_out} left out")
    for name, (model, precision, rest) in _CASES.items():
        profile = parse_profile(_HEAD.format(model=model, precision=precision) + rest, source="bench")
        before_s = time.process_time()
        found = search_fleet(
            profile,
            model_card=resolve_model(profile.model, CATALOGUE),
            catalogue=CATALOGUE,
            offerings=tuple(offerings),
            profile_hash="bench",
            layouts={lane.name: RULES for lane in profile.lanes},
            solve=solve,
        )
        took_s = time.process_time() - before_s
        cost = math.fsum(option.cost_usd_per_hour for option in found.chosen)
        kinds = "; ".join(f"{o.lane.name} {o.markets.replicas} x {o.result.instance.label}" for o in found.chosen)
        print(f"{name}: {took_s:.2f} s of CPU, ${cost:,.2f} an hour ({kinds})", flush=True)


if __name__ == "__main__":
    main()
