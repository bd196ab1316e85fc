"""The emulator's command line."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl import plugins
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.model.catalogue import Precision
from fleetctl_emulator.capabilities import KV_CACHE_DTYPES
from fleetctl_emulator.faults import InjectedFault, describe, parse_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorOptions:
    """How one emulated engine is launched."""

    flavour: str  # the engine it plays, by its name
    engine_version: str  # that it says it is; empty: the newest known
    model: str
    served_model_name: str
    adapters: dict[str, str]  # LoRA adapters served beside the model: by name, where they lie
    model_card: str  # JSON, in place of looking `model` up
    gpu: str
    gpu_spec: str  # JSON, in place of looking `gpu` up
    tensor_parallel: int
    pipeline_parallel: int
    nodes: int  # machines of the replica, a stage or more on each
    node_rank: int  # above 0: one of the further machines, without a server of its own
    leader_host: str
    leader_port: int
    quantization: Precision
    kv_cache: Precision | None
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int | None
    gpu_memory_utilization: float
    host: str
    port: int
    seed: int
    startup_s: float
    speed: float
    max_queued_requests: int | None
    shutdown_timeout_s: float | None
    priority_scheduling: bool
    low_values_first: bool  # SGLang's order turned round
    prefix_caching: bool
    stream_interval: int
    tool_call_parser: str  # empty: none
    stream_burst_s: float
    watermark: float
    api_key: str
    faults: tuple[InjectedFault, ...]


def parse_options(arguments: Sequence[str]) -> EmulatorOptions:
    """Return the options. Wrong usage ends the process with status 2, as argparse does."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.max_num_batched_tokens < given.max_num_seqs:
        parser.error(
            f"--max-num-batched-tokens {given.max_num_batched_tokens} is less than --max-num-seqs "
            f"{given.max_num_seqs}: not every running sequence could get its token in a step"
        )
    if given.node_rank >= given.nnodes:
        parser.error(f"--node-rank {given.node_rank}: the {given.nnodes} machines of --nnodes are counted from 0")
    if given.port is None and not given.node_rank:
        parser.error("--port is required of whoever serves: of every machine but those with a --node-rank above 0")
    if given.api_key_env and not os.environ.get(given.api_key_env):
        parser.error(f"--api-key-env {given.api_key_env}: there is no such variable in the environment, or it is empty")
    return EmulatorOptions(
        flavour=given.flavour,
        engine_version=given.engine_version,
        model=given.model,
        served_model_name=given.served_model_name or given.model,
        adapters=dict(given.lora_modules),
        model_card=given.model_card,
        gpu=given.gpu,
        gpu_spec=given.gpu_spec,
        tensor_parallel=given.tensor_parallel,
        pipeline_parallel=given.pipeline_parallel,
        nodes=given.nnodes,
        node_rank=given.node_rank,
        leader_host=given.leader_host,
        leader_port=given.leader_port,
        quantization=Precision(given.quantization),
        kv_cache=KV_CACHE_DTYPES[given.kv_cache_dtype],
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=given.max_num_batched_tokens,
        max_model_len=given.max_model_len,
        gpu_memory_utilization=given.gpu_memory_utilization,
        host=given.host,
        port=given.port or 0,
        seed=given.seed,
        startup_s=given.startup_s,
        speed=given.speed,
        max_queued_requests=given.max_queued_requests,
        shutdown_timeout_s=given.shutdown_timeout_s,
        priority_scheduling=given.priority_scheduling,
        low_values_first=given.schedule_low_priority_values_first,
        prefix_caching=not given.no_prefix_caching,
        stream_interval=given.stream_interval,
        tool_call_parser=given.tool_call_parser,
        stream_burst_s=given.stream_burst_s,
        watermark=given.watermark,
        api_key=os.environ.get(given.api_key_env, "") if given.api_key_env else "",
        faults=tuple(given.fault),
    )


def flags() -> frozenset[str]:
    """Return every flag it takes."""
    return frozenset(flag for action in _parser()._actions for flag in action.option_strings)  # noqa: SLF001  # argparse has no other way


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fleetctl_emulator",
        description="An LLM inference engine look-alike: a real HTTP server, timed by a performance model.",
        allow_abbrev=False,
    )
    _add_instance(parser)
    _add_scheduling(parser)
    _add_behaviour(parser)
    return parser


def _add_instance(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--flavour", choices=plugins.installed(plugins.EMULATED), default="vllm", help="which engine it plays")
    add("--engine-version", default="", help="the version it says it is (default: the newest known)")
    add("--model", required=True, help="a model of the catalogue, or a directory with a config.json")
    add("--model-card", default="", metavar="JSON", help="the model's shape, instead of looking --model up")
    add("--served-model-name", default="", help="what clients put in `model` (default: --model)")
    add("--lora-modules", type=_adapter, nargs="+", default=(), metavar="NAME=PATH", help="LoRA adapters, by name")
    add("--gpu", required=True, help="a GPU of the catalogue")
    add("--gpu-spec", default="", metavar="JSON", help="the GPU's datasheet, instead of looking --gpu up")
    add("--tensor-parallel", type=_count, default=1)
    add("--pipeline-parallel", type=_count, default=1, help="stages on one machine, one after the other")
    add("--nnodes", type=_count, default=1, help="machines of one replica, --pipeline-parallel stages on each")
    add("--node-rank", type=_none_or_more, default=0, help="above 0: joins the leader, and serves nobody itself")
    add("--leader-host", default="127.0.0.1", help="of the machine with rank 0, where the others join it")
    add("--leader-port", type=_port, default=29501)
    add("--quantization", choices=[str(kind) for kind in Precision], default="bf16")
    add("--kv-cache-dtype", choices=list(KV_CACHE_DTYPES), default="auto")
    add("--gpu-memory-utilization", type=_above_zero, default=0.92)
    add("--host", default="127.0.0.1")
    add("--port", type=_port, help="0: any free one; it is printed when the engine is ready")


def _add_scheduling(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--max-num-seqs", type=_count, default=256)
    add("--max-num-batched-tokens", type=_count, default=2048)
    add("--max-model-len", type=_count, help="default: the model's, or what the KV cache holds if that is less")
    add(
        "--max-queued-requests",
        type=_none_or_more,
        help="as the engine counts: vLLM and TGI waiting and running, SGLang waiting only. When full vLLM and SGLang "
        "answer 503, TGI 429 (its default: 128)",
    )
    add("--priority-scheduling", action="store_true", help="vLLM: lower first; SGLang: higher first")
    add("--schedule-low-priority-values-first", action="store_true", help="SGLang: lower first, as vLLM")
    add("--no-prefix-caching", action="store_true")
    add("--stream-interval", type=_count, default=1, help="tokens an event of a stream carries; TGI always sends one")
    add(
        "--stream-burst-s",
        type=_not_negative,
        default=0.0,
        help="hold a stream's events back, all but the first, and send them together every so many seconds",
    )
    add("--watermark", type=_share, default=0.0, help="share of the KV cache kept free when admitting")


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--tool-call-parser",
        default="",
        metavar="NAME",
        help="vLLM: take tools whose use the model is to decide, as with --enable-auto-tool-choice; it never uses one",
    )
    add("--seed", type=int, default=0, help="fixes answers, lengths and jitter")
    add("--startup-s", type=_not_negative, default=0.0, help="stands for loading weights")
    add("--speed", type=_above_zero, default=1.0, help="2: every step takes half its modelled time")
    add(
        "--shutdown-timeout-s",
        type=_not_negative,
        help="SIGTERM: how long to drain. Default: vLLM 0, which aborts; TGI 90; SGLang drains without a deadline",
    )
    add("--api-key-env", default="", metavar="NAME", help="the variable that holds the key clients must send")
    add("--fault", action="append", default=[], type=_fault, metavar="SPEC", help=describe().replace("%", "%%"))


def _number(kind: Callable[[str], float], text: str, is_allowed: Callable[[float], bool], wanted: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not is_allowed(value):
        raise argparse.ArgumentTypeError(f"{text} is not {wanted}")
    return value


def _count(text: str) -> int:
    return int(_number(int, text, lambda value: value > 0, "1 or more"))


def _none_or_more(text: str) -> int:
    return int(_number(int, text, lambda value: value >= 0, "0 or more"))


def _adapter(text: str) -> tuple[str, str]:
    name, _, where = text.partition("=")
    if not (name and where):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, where


def _port(text: str) -> int:
    return int(_number(int, text, lambda value: 0 <= value < 65536, "a port (0-65535)"))


def _above_zero(text: str) -> float:
    return _number(float, text, lambda value: 0 < value < float("inf"), "more than 0")


def _not_negative(text: str) -> float:
    return _number(float, text, lambda value: 0 <= value < float("inf"), "0 or more")


def _share(text: str) -> float:
    return _number(float, text, lambda value: 0 <= value < 1, "from 0 to below 1")


def _fault(text: str) -> InjectedFault:
    try:
        return parse_fault(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}".rstrip("; ")) from error


def explain(error: FleetctlError) -> str:
    """Return an error as the process prints it before it exits."""
    return f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
