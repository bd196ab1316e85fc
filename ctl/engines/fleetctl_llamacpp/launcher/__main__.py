"""Runs the server of PyPI's xllamacpp with the flags of `llama-server`: `PYTHON path/to/launcher --model FILE ...`.

It runs in the Python that has xllamacpp, which need not be fleetctl's, and imports nothing of fleetctl. The binding makes
the same server of the same code, and takes structures in place of flags: those that fleetctl gives, and some more.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from typing import Any

_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def parser() -> argparse.ArgumentParser:
    """Return the flags that can be given."""
    flags = argparse.ArgumentParser(prog="llama-server (xllamacpp)", allow_abbrev=False)
    flags.add_argument("-m", "--model", required=True)
    flags.add_argument("-a", "--alias", default="")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=8080)
    flags.add_argument("-c", "--ctx-size", type=int, default=0)
    flags.add_argument("-np", "--parallel", type=int, default=1)
    flags.add_argument("-b", "--batch-size", type=int)
    flags.add_argument("-ub", "--ubatch-size", type=int)
    flags.add_argument("-t", "--threads", type=int, default=os.environ.get("LLAMA_ARG_THREADS"))
    flags.add_argument("-tb", "--threads-batch", type=int)
    flags.add_argument("-ctk", "--cache-type-k", choices=_CACHE_TYPES)
    flags.add_argument("-ctv", "--cache-type-v", choices=_CACHE_TYPES)
    flags.add_argument("-fa", "--flash-attn", choices=("on", "off", "auto"))
    flags.add_argument("-ngl", "--gpu-layers", "--n-gpu-layers", dest="gpu_layers", type=int)
    flags.add_argument("-sm", "--split-mode", choices=("none", "layer", "row", "tensor"))
    flags.add_argument("-cram", "--cache-ram", type=int)
    flags.add_argument("--chat-template", default="")
    flags.add_argument("-kvu", "--kv-unified", action=argparse.BooleanOptionalAction, default=False)
    flags.add_argument("--cache-prompt", action=argparse.BooleanOptionalAction, default=True)
    flags.add_argument("--warmup", action=argparse.BooleanOptionalAction, default=True)
    flags.add_argument("--jinja", action=argparse.BooleanOptionalAction, default=True)
    flags.add_argument("--slots", action=argparse.BooleanOptionalAction, default=True)
    flags.add_argument("--webui", action=argparse.BooleanOptionalAction, default=False)
    flags.add_argument("--metrics", action="store_true")
    return flags


def parameters(x: Any, given: argparse.Namespace) -> Any:  # noqa: ANN401  # the binding has no types
    """Return the binding's parameters; what is not given stays as llama.cpp has it."""
    made = x.CommonParams()
    made.model.path = given.model
    made.model_alias = {given.alias} if given.alias else set()
    made.hostnames, made.port = [given.host], given.port
    made.n_ctx, made.n_parallel, made.kv_unified = given.ctx_size, given.parallel, given.kv_unified
    made.cache_prompt, made.warmup, made.use_jinja = given.cache_prompt, given.warmup, given.jinja
    made.endpoint_metrics, made.endpoint_slots, made.ui = given.metrics, given.slots, given.webui
    made.fit_params = os.environ.get("LLAMA_ARG_FIT") != "off"
    made.sse_ping_interval = int(os.environ.get("LLAMA_ARG_SSE_PING_INTERVAL", made.sse_ping_interval))
    if key := os.environ.get("LLAMA_API_KEY"):
        made.api_keys = [key]
    if given.chat_template:
        made.chat_template = given.chat_template
    named = {"n_batch": given.batch_size, "n_ubatch": given.ubatch_size, "n_gpu_layers": given.gpu_layers}
    for name, value in (named | {"cache_ram_mib": given.cache_ram}).items():
        if value is not None:
            setattr(made, name, value)
    for name, kind in (("cache_type_k", given.cache_type_k), ("cache_type_v", given.cache_type_v)):
        if kind is not None:
            setattr(made, name, getattr(x.ggml_type, f"GGML_TYPE_{kind.upper()}"))
    if given.flash_attn is not None:
        word = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[given.flash_attn]
        made.flash_attn_type = getattr(x.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{word}")
    if given.split_mode is not None:
        made.split_mode = getattr(x.llama_split_mode, f"LLAMA_SPLIT_MODE_{given.split_mode.upper()}")
    if given.threads is not None:
        made.cpuparams.n_threads = given.threads
        made.cpuparams_batch.n_threads = given.threads_batch or given.threads
    return made


def main() -> int:
    """Serve until SIGTERM or SIGINT, which end what runs, as llama-server's do."""
    given = parser().parse_args()
    ends = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server makes its threads, so that only this one waits for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    x = importlib.import_module("xllamacpp")
    try:
        server = x.Server(parameters(x, given))
    except RuntimeError as error:
        # llama.cpp has said why. Its threads may still be there, and would keep this process from ending.
        print(f"{given.model}: {error}", file=sys.stderr, flush=True)  # noqa: T201  # its log
        os._exit(1)
    print(f"xllamacpp {x.__version__}: listening on {server.listening_address}", flush=True)  # noqa: T201  # its log
    signal.sigwait(ends)
    # The binding waits for open streams when it is taken down; llama-server does not, and fleetctl drains beforehand.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
