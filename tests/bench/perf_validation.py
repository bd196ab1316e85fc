"""Prints how far the step model is from public measurements: python -m tests.bench.perf_validation DIRECTORY

DIRECTORY holds, as far as they are there (a missing one is named and left out):
  silicon_dense_h100.csv                              aiconfigurator, Apache-2.0: closed loops on H100
  inference_perf_kubecon25_llama31_8b_h100.csv        inference-perf, Apache-2.0: open loops, vLLM 0.11, one H100
  llmservingsim_vllm_RTXPRO6000_Llama-3.1-8B.jsonl.gz LLMServingSim, MIT: a vLLM log, request by request
  kernels/*_gemm_perf.parquet                         aiconfigurator, Apache-2.0: GEMM times (needs pyarrow)

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
from fleetctl.core.perf.step import StepBatch, StepModel, chunk_context_tokens, efficiency_of, step_model
from fleetctl.model.catalogue import Precision
from tests.plan.replay import Served, replay

CATALOGUE = load_catalogue()
CHUNK_TOKENS = 2048
KNEE_STEP_RPS = 4.0
FIRST_WAVE_SHARE = 1 / 8  # closed loops start all clients at once; eight rounds is what their own TTFT suggests

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


def main() -> None:
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
