"""Prints how far the step model is from public measurements: python -m tests.bench.perf_validation DIRECTORY

DIRECTORY holds, as far as they are there (a missing one is named and left out):
  silicon_dense_h100.csv                              aiconfigurator, Apache-2.0: closed loops on H100
  inference_perf_kubecon25_llama31_8b_h100.csv        inference-perf, Apache-2.0: open loops, vLLM 0.11, one H100
  llmservingsim_vllm_RTXPRO6000_Llama-3.1-8B.jsonl.gz LLMServingSim, MIT: a vLLM log, request by request
  kernels/*_gemm_perf.parquet                         aiconfigurator, Apache-2.0: GEMM times (needs pyarrow)

KV cache sizes and memory peaks that engines logged are in here, with their sources.

What the constants were fitted on is marked "fitted"; everything else is judged.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import math
import random
import statistics
import sys
from pathlib import Path
from typing import Any

from fleetctl.catalogue.known import load_catalogue
from fleetctl.core.perf.frontend import FRONTEND_S, forecast_errors
from fleetctl.core.perf.kv import kv_cache_bytes_per_token_per_gpu, kv_capacity_tokens, peak_bytes
from fleetctl.core.perf.step import StepBatch, StepModel, chunk_context_tokens, efficiency_of, step_model
from fleetctl.model.catalogue import Precision
from tests.plan.replay import Served, replay

CATALOGUE = load_catalogue()
CHUNK_TOKENS = 2048
KNEE_STEP_RPS = 4.0
FIRST_WAVE_SHARE = 1 / 8  # closed loops start all clients at once; eight rounds is what their own TTFT suggests

GOAL_KV = 0.05  # of every size that was not fitted
GOALS_DENSE, GOALS_MOE = (0.05, 0.10), (0.10, 0.20)  # medians of (TPOT, TTFT) on rows that were not fitted

# Which closed-loop rows had a say in a constant: the collective's at 70B TP4 and TP8, the expert kernels' at gpt-oss.
FITTED = {
    ("meta-llama/Llama-3.1-70B", 2): ", fitted",
    ("meta-llama/Llama-3.1-70B", 4): ", partly fitted",
    ("meta-llama/Llama-3.1-70B", 8): ", partly fitted",
    ("openai/gpt-oss-120b", 2): ", TPOT fitted",
}


def instance(model: str, gpu: str, tensor_parallel: int, precision: Precision) -> StepModel:
    return step_model(
        CATALOGUE.models[model], CATALOGUE.gpus[gpu],
        tensor_parallel=tensor_parallel, precision=precision, kv_precision=Precision.BF16,
    )  # fmt: skip


def say(name: str, tpot: list[float], ttft: list[float], *, gpu: str = "H100") -> None:
    """Print the medians of a data set, and how many of its rows lie inside the interval that a plan prints."""
    interval = forecast_errors(CATALOGUE.gpus[gpu])

    def column(errors: list[float], width: float) -> str:
        if not errors:
            return "      -       -      -"
        inside = sum(-width <= 1 / (1 + e) - 1 <= width for e in errors) / len(errors)
        return f"{statistics.median(abs(e) for e in errors):7.1%} {statistics.median(errors):+7.1%} {inside:6.0%}"

    print(f"{name:52s} {max(len(tpot), len(ttft)):5d}  {column(tpot, interval[0])}   {column(ttft, interval[1])}")
    goals = GOALS_MOE if "oss" in name else GOALS_DENSE
    for what, errors, limit in (("TPOT", tpot, goals[0]), ("TTFT", ttft, goals[1])):
        if errors and "fitted" not in name and (found := statistics.median(abs(e) for e in errors)) > limit:
            print(f"    FAILS: {what} {found:.1%}, asked {limit:.0%}")


def row(words: str, *figures: tuple[str, float, float]) -> None:
    """Print one measured row beside what is modelled: (name, modelled, measured) in seconds."""
    print(
        f"    {words:30s}"
        + "".join(f"  {n} {got * 1e3:9.1f} of {want * 1e3:9.1f} ms {got / want - 1:+7.1%}" for n, got, want in figures)
    )


def closed_loop(step: StepModel, clients: int, prompt: int, output: int) -> tuple[float, float]:
    """Return (TPOT, mean TTFT) of clients that each send the next request when the last is answered."""
    chunk = min(CHUNK_TOKENS, prompt)
    chunks = math.ceil(prompt / chunk)
    attended = chunk_context_tokens(0, prompt) / chunks
    resident = clients * (prompt + output / 2)
    mixed = step.step_s(StepBatch(prompt / chunks, attended, clients, resident))
    share = min(1.0, clients * chunks / output)
    tpot = (1 - share) * step.step_s(StepBatch(0, 0, clients, resident)) + share * mixed
    steady = FRONTEND_S + tpot / 2 + chunks * mixed
    burst = FRONTEND_S + (clients + 1) / 2 * step.prefill_s(prompt)
    return tpot, FIRST_WAVE_SHARE * burst + (1 - FIRST_WAVE_SHARE) * steady


def silicon(path: Path) -> None:
    known = {
        "meta-llama/Llama-3.1-70B": Precision.FP8,
        "meta-llama/Llama-3.1-8B-Instruct": Precision.BF16,
        "openai/gpt-oss-120b": Precision.INT4,
    }
    groups: dict[str, tuple[list[float], list[float]]] = {}
    seen = set()
    for each in csv.DictReader(path.open()):
        ttft_s, tpot_s = float(each["silicon_ttft_ms"]) / 1e3, float(each["silicon_tpot_ms"]) / 1e3
        clients, tp = int(float(each["concurrency"])), int(float(each["tp_size"]))
        key = (each["model_path"], each["backend"], each["isl"], each["osl"], tp, clients)
        # Past the KV cliff (seconds of TTFT) there is no steady state to compare with.
        if each["model_path"] not in known or clients > 64 or ttft_s > 3.0 or key in seen:
            continue
        seen.add(key)
        step = instance(each["model_path"], "H100", tp, known[each["model_path"]])
        tpot, ttft = closed_loop(step, clients, int(each["isl"]), int(each["osl"]))
        fitted = FITTED.get((each["model_path"], tp), "")
        name = f"silicon {each['model_path'].split('/')[1]} {each['backend']} TP{tp}{fitted}"
        row(
            f"{name[8:30]} TP{tp} {each['isl']}/{each['osl']} x{clients}",
            ("TPOT", tpot, tpot_s),
            ("TTFT", ttft, ttft_s),
        )
        errors = groups.setdefault(name, ([], []))
        errors[0].append(tpot / tpot_s - 1)
        if each["backend"] == "vllm":  # the others' TTFT is the burst alone
            errors[1].append(ttft / ttft_s - 1)
    for name, (tpots, ttfts) in sorted(groups.items()):
        say(name, tpots, ttfts)


def poisson(rps: float, count: int, prompt: int, output: int) -> list[Served]:
    rng, at, found = random.Random(7), 0.0, []
    for _ in range(count):
        at += rng.expovariate(rps)
        found.append(Served(arrival_s=at, prompt_tokens=prompt, output_tokens=output))
    return found


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def kubecon(path: Path) -> None:
    step = instance("meta-llama/Llama-3.1-8B-Instruct", "H100", 1, Precision.BF16)
    rows = list(csv.DictReader(path.open()))
    for variant, seqs in (("vllm", 128), ("vllm+batch_size", 256)):
        tpots, medians, tails, knee = [], [], [], 0.0
        for each in (r for r in rows if r["variant"] == variant):
            rps, done = float(each["achieved_rps"]), float(each["done_rps"])
            knee = max(knee, done)
            if float(each["ttft_p99_ms"]) > 1000:
                continue
            served = poisson(rps, 3000, round(float(each["prompt_mean"])), round(float(each["out_mean"])))
            replay(step, served, seqs_max=seqs, batched_tokens_max=CHUNK_TOKENS)
            tpots.append(statistics.median(r.tpot_s for r in served) / float(each["tpot_derived_ms"]) * 1e3 - 1)
            ttft = [FRONTEND_S + r.ttft_s for r in served]
            row(f"{variant} {rps:.0f} rps",
                ("TPOT", statistics.median(r.tpot_s for r in served), float(each["tpot_derived_ms"]) / 1e3),
                ("TTFT P50", statistics.median(ttft), float(each["ttft_p50_ms"]) / 1e3),
                ("P99", p99(ttft), float(each["ttft_p99_ms"]) / 1e3))  # fmt: skip
            medians.append(statistics.median(ttft) / float(each["ttft_p50_ms"]) * 1e3 - 1)
            tails.append(p99(ttft) / float(each["ttft_p99_ms"]) * 1e3 - 1)
        fitted = ", TPOT fitted" if variant == "vllm" else ""
        say(f"kubecon25 {variant}, TTFT P50{fitted}", tpots, medians)
        say(f"kubecon25 {variant}, TTFT P99", [], tails)
        flooded = poisson(2 * knee, 6000, 203, 62)
        replay(step, flooded, seqs_max=seqs, batched_tokens_max=CHUNK_TOKENS)
        modelled = len(flooded) / max(r.last_s for r in flooded)
        print(f"    knee: modelled {modelled:.1f} rps, measured {knee:.1f} ({modelled / knee - 1:+.1%})")


def rtx_log(path: Path) -> None:
    """Replay a vLLM log at its own arrivals, 128 sequences; its times start at the engine, without a front end."""
    with gzip.open(path) as lines:
        rows = sorted((json.loads(line) for line in lines), key=lambda r: r["queued_ts"])
    start = rows[0]["queued_ts"]
    served = [
        Served(arrival_s=r["queued_ts"] - start, prompt_tokens=r["input_toks"], output_tokens=r["output_toks"])
        for r in rows
    ]
    step = instance("meta-llama/Llama-3.1-8B-Instruct", "RTX PRO 6000", 1, Precision.BF16)
    replay(step, served, seqs_max=128, batched_tokens_max=CHUNK_TOKENS)
    measured = [(r["last_token_ts"] - r["first_token_ts"]) / (r["output_toks"] - 1) for r in rows]
    ttfts = [r["first_token_ts"] - r["queued_ts"] for r in rows]
    for s, r, m, t in list(zip(served, rows, measured, ttfts, strict=True)):
        row(f"{r['request_id']} {s.prompt_tokens}/{s.output_tokens}", ("TPOT", s.tpot_s, m), ("TTFT", s.ttft_s, t))
    say("LLMServingSim Llama-3.1-8B vLLM RTX PRO 6000",
        [s.tpot_s / m - 1 for s, m in zip(served, measured, strict=True)],
        [s.ttft_s / m - 1 for s, m in zip(served, ttfts, strict=True)], gpu="RTX PRO 6000")  # fmt: skip
    print(f"    TTFT P99: modelled {p99([s.ttft_s for s in served]):.1f} s, measured {p99(ttfts):.1f} s")


def kernels(directory: Path) -> None:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        print("kernels/: left out, they need pyarrow")
        return
    for path in sorted(directory.glob("*_gemm_perf.parquet")):
        gpu = CATALOGUE.gpus["H100" if path.name.startswith("h100") else "A100-80GB"]
        errors: dict[str, list[float]] = {}
        e = efficiency_of(gpu)
        for row in parquet.read_table(path).to_pylist():
            m, n, k, kind = row["m"], row["n"], row["k"], row["gemm_dtype"]
            if kind not in ("bfloat16", "fp8") or n < 1024 or k < 1024 or n * k < 4e6 or m > 8192:
                continue
            width = Precision.FP8 if kind == "fp8" else Precision.BF16
            share, memory = (e.flops_8bit, e.memory_quantized) if kind == "fp8" else (e.flops_16bit, e.memory)
            read = (n * k * width.bytes_per_element + 2 * m * (n + k)) / gpu.memory_bytes_per_s / memory
            compute = 2 * m * n * k / gpu.flops_per_s(width) / share
            p = e.corner
            errors.setdefault(kind, []).append(
                (e.kernel_s + (read**p + compute**p) ** (1 / p)) / (row["latency"] * 1e-3) - 1
            )
        fitted = ", fitted"
        for kind, found in errors.items():
            say(f"GEMM kernels {gpu.name} {kind}{fitted} (time)", found, [])


# vLLM 0.19 on one or several H100 at 0.95, 8,192 batched tokens and 1,024 sequences (its own defaults there): what memory profiling
# logged. github.com/llm-d-incubation/llm-d-planner, accuracy report of July 2026; 16 bits, model -> (TP, GiB at the peak, GiB of KV
# cache on each GPU). The cache at TP 2 and 4 is what is left of 75.23 GiB. The sampler's bytes a logit and the collectives' were fitted
# to Llama's rows, all others are held out.
_LOGGED = (
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 1.89, 58.11, ", fitted"),
    ("meta-llama/Llama-3.1-8B-Instruct", 2, 1.89, 63.76, ", fitted"),
    ("meta-llama/Llama-3.1-8B-Instruct", 4, 1.89, 67.44, ", fitted"),
    ("Qwen/Qwen2.5-7B-Instruct", 1, 2.21, 58.53, ""),
    ("Qwen/Qwen2.5-7B-Instruct", 2, 2.21, 63.84, ""),
    ("Qwen/Qwen2.5-7B-Instruct", 4, 2.21, 67.34, ""),
    ("Qwen/Qwen3-8B", 1, 2.21, 0.0, ""),
    ("microsoft/phi-4", 1, 1.52, 0.0, ""),
    ("google/gemma-3-27b-it", 1, 3.99, 0.0, ""),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 1.21, 0.0, ""),
    ("Qwen/Qwen3-30B-A3B", 1, 2.68, 0.0, ""),
    ("openai/gpt-oss-20b", 2, 2.87, 0.0, ""),
)
# Of other releases, from their own logs: (model, GPU, TP, weights, utilization, batched tokens, sequences, tokens, which).
_LOGGED_ELSEWHERE = (
    (
        "meta-llama/Llama-3.1-70B",
        "H100",
        1,
        Precision.INT8,
        0.98,
        8192,
        256,
        22_096,
        "V1 of January 2025, vllm pull 12569",
    ),
    (
        "meta-llama/Llama-3.1-8B",
        "A100-80GB",
        1,
        Precision.BF16,
        0.90,
        8192,
        256,
        436_552,
        "V0, 53.29 GiB, vllm pull 10511",
    ),
    ("Qwen/Qwen3-235B-A22B", "H100", 4, Precision.FP8, 0.90, 8192, 1024, 178_880, "July 2025, vllm issue 21348"),
    ("openai/gpt-oss-120b", "H100", 1, Precision.INT4, 0.95, 8192, 1024, 49_800, "0.11, 1.71 GiB, vllm issue 27508"),
)


def kv_cache() -> None:
    """Print the memory that engines logged beside what is reckoned with."""
    errors: dict[str, list[float]] = {}
    gib = 2.0**30
    for model, tp, peak_gib, kv_gib, fitted in _LOGGED:
        card, gpu = CATALOGUE.models[model], CATALOGUE.gpus["H100"]
        peak = peak_bytes(card, tensor_parallel=tp, max_num_batched_tokens=8192, max_num_seqs=1024) / gib
        words = (
            f"    {model.split('/')[1]:28s} TP{tp}  peak {peak:6.2f} of {peak_gib:6.2f} GiB {peak / peak_gib - 1:+7.1%}"
        )
        errors.setdefault(f"memory peak of a step, vLLM 0.19{fitted}", []).append(peak / peak_gib - 1)
        if kv_gib:
            tokens = kv_capacity_tokens(
                card, gpu, tensor_parallel=tp, precision=card.native_precision, kv_precision=Precision.BF16,
                gpu_memory_utilization=0.95, max_num_batched_tokens=8192, max_num_seqs=1024,
            )  # fmt: skip
            held = tokens * kv_cache_bytes_per_token_per_gpu(card, Precision.BF16, tp) / gib
            words += f"  KV cache {held:6.2f} of {kv_gib:6.2f} GiB {held / kv_gib - 1:+7.1%}"
            errors.setdefault(f"KV cache, vLLM 0.19{fitted}", []).append(held / kv_gib - 1)
        print(words)
    for model, name, tp, precision, share, chunk, seqs, logged, which in _LOGGED_ELSEWHERE:
        tokens = kv_capacity_tokens(
            CATALOGUE.models[model], CATALOGUE.gpus[name], tensor_parallel=tp, precision=precision,
            kv_precision=Precision.BF16, gpu_memory_utilization=share, max_num_batched_tokens=chunk, max_num_seqs=seqs,
        )  # fmt: skip
        words = f"{model.split('/')[1]} TP{tp} {name} ({which})"
        print(f"    {words:76s} {tokens:>9,d} of {logged:>9,d} tokens {tokens / logged - 1:+7.1%}")
    for name, found in errors.items():
        median, worst = statistics.median(map(abs, found)), max(map(abs, found))
        print(f"{name:52s} {len(found):5d}  median {median:.1%}, worst {worst:.1%}")
        if "KV" in name and worst > GOAL_KV:
            print(f"    FAILS: {worst:.1%}, asked {GOAL_KV:.0%}")


def main() -> None:
    kv_cache()
    if len(sys.argv) < 2:  # no directory: the logged sizes alone
        return
    directory = Path(sys.argv[1])
    print(
        f"{'data set':52s} {'rows':>5s}  {'TPOT |e|':>7s} {'bias':>7s} inside   {'TTFT |e|':>7s} {'bias':>7s} inside (medians)"
    )
    for name, judge in (
        ("silicon_dense_h100.csv", silicon),
        ("inference_perf_kubecon25_llama31_8b_h100.csv", kubecon),
        ("llmservingsim_vllm_RTXPRO6000_Llama-3.1-8B.jsonl.gz", rtx_log),
        ("kernels", kernels),
    ):
        if (directory / name).exists():
            judge(directory / name)
        else:
            print(f"{name}: not there, left out")


if __name__ == "__main__":
    main()
