"""Reads what benchmark tools write: `vllm bench serve`, guidellm, aiperf; each run is one steady load."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fleetctl.core.perf.calibration import MeasuredLoad
from fleetctl.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BYTES_MAX = 256 * 1024 * 1024


def read_benchmark(path: Path) -> tuple[str, tuple[MeasuredLoad, ...], tuple[float, ...]]:
    """Return (the tool, its loads, prompt lengths one by one where the file has them).

    A file is one JSON value, or one a line (`vllm bench serve --append-result`). Raises NotFoundError and ConfigError.
    """
    if not path.is_file():
        raise NotFoundError(
            f"no benchmark at {path}", hint="give a file of vllm bench serve, guidellm or aiperf, or a URL"
        )
    if path.stat().st_size > _BYTES_MAX:
        raise ConfigError(f"{path}: is over {_BYTES_MAX >> 20} MiB: no benchmark's summary")
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        values = _values(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}") from error
    for tool, read in (("vllm bench serve", _vllm), ("guidellm", _guidellm), ("aiperf", _aiperf)):
        try:
            loads = tuple(load for value in values for load in read(value))
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            continue
        if loads and all(load.tpot_s > 0 and load.prompt_tokens > 0 for load in loads):
            return tool, loads, tuple(length for value in values for length in _lengths(value))
    raise ConfigError(
        f"{path}: is no result that is known",
        hint="known are the JSON of `vllm bench serve --save-result`, `guidellm benchmark` and `aiperf profile`",
    )


def _values(text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError:
        value = [json.loads(line) for line in text.splitlines() if line.strip()]
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, dict)]


def _vllm(value: dict[str, Any]) -> Iterator[MeasuredLoad]:
    completed, duration_s = value["completed"], value["duration"]
    output_tokens = value["total_output_tokens"] / completed
    tpot_s = value.get("median_tpot_ms", value["mean_tpot_ms"]) / 1e3
    yield MeasuredLoad(
        prompt_tokens=value["total_input_tokens"] / completed,
        output_tokens=output_tokens,
        decoding=completed / duration_s * output_tokens * value["mean_tpot_ms"] / 1e3,
        tpot_s=tpot_s,
        ttft_s=value["median_ttft_ms"] / 1e3,
    )


def _guidellm(value: dict[str, Any]) -> Iterator[MeasuredLoad]:
    for run in value["benchmarks"]:
        metrics = run["metrics"]

        def of(name: str, figure: str, metrics: dict[str, Any] = metrics) -> float:
            return float(metrics[name]["successful"][figure])

        output_tokens, itl_ms = of("output_token_count", "mean"), of("inter_token_latency_ms", "mean")
        yield MeasuredLoad(
            prompt_tokens=of("prompt_token_count", "mean"),
            output_tokens=output_tokens,
            decoding=of("requests_per_second", "mean") * output_tokens * itl_ms / 1e3,
            tpot_s=of("inter_token_latency_ms", "median") / 1e3,
            ttft_s=of("time_to_first_token_ms", "median") / 1e3,
        )


_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}


def _aiperf(value: dict[str, Any]) -> Iterator[MeasuredLoad]:
    def seconds(name: str, figure: str) -> float:
        return float(value[name][figure]) * _SECONDS[value[name]["unit"]]

    output_tokens = float(value["output_sequence_length"]["avg"])
    yield MeasuredLoad(
        prompt_tokens=float(value["input_sequence_length"]["avg"]),
        output_tokens=output_tokens,
        decoding=float(value["request_throughput"]["avg"]) * output_tokens * seconds("inter_token_latency", "avg"),
        tpot_s=seconds("inter_token_latency", "p50"),
        ttft_s=seconds("time_to_first_token", "p50"),
    )


def _lengths(value: dict[str, Any]) -> Iterator[float]:
    given = value.get("input_lens")
    if isinstance(given, list):
        yield from (float(each) for each in given if isinstance(each, int) and each > 0)
