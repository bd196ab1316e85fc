"""What TGI can do."""

from __future__ import annotations

from fleetctl.engine_kit import reserved
from fleetctl.model.request_form import RequestForm
from fleetctl.model.serving import SpeculationMethod
from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour
from fleetctl_tgi.launch import KV_CACHE_DTYPES, LOAD_TIME_METHODS

_RESERVED = {
    **dict.fromkeys(
        ("--hostname", "--port", "-p", "--prometheus-port", "--master-port", "--master-addr"), reserved.LISTENS
    ),
    "--shard-uds-path": reserved.LISTENS,
    "--model-id": reserved.MODEL,
    "--api-key": reserved.KEY,
    "--max-batch-total-tokens": reserved.KV_SPACE,
    **dict.fromkeys(("--num-shard", "--sharded"), reserved.TENSOR_PARALLEL),
}

_PLANNED = {
    "--max-batch-size": reserved.SEQS,
    **dict.fromkeys(("--max-input-tokens", "--max-input-length", "--max-total-tokens"), reserved.LENGTH),
    "--max-batch-prefill-tokens": reserved.STEP_TOKENS,
    "--cuda-memory-fraction": reserved.MEMORY_SHARE,
    "--kv-cache-dtype": reserved.KV_FORMAT,
}

# By the router's own types and rules (lib.rs, validation.rs).
_LACKS = {
    "n": "gives one choice, however many are wanted",
    "logit_bias": "looks at no bias",
    "token_ids": "takes no prompt of token ids",
    "negative_seed": "takes no seed below zero",
    "lowest_presence_penalty": "takes a presence penalty for one of repetition, two higher, which must be over 0",
}
# A nucleus must be under 1; a presence penalty of 0 would be one of repetition of 2; null is no false.
_FORM = RequestForm(leaves_out={"top_p": 1.0, "presence_penalty": 0.0, "n": 1.0}, lists=("stop",))

CAPABILITIES = EngineCapabilities(
    # A last message of the assistant is gone on from, whatever the request's flags say (router, chat_template.rs).
    continues_streams=True,
    priority_order=PriorityOrder.NONE,
    reserves_output=True,
    # --graceful-termination-timeout's own default.
    shutdown=ShutdownBehaviour(drain_s=90.0, refuses_new=False, keeps_listening=False),
    kv_cache_precisions=frozenset(KV_CACHE_DTYPES),
    load_time_precisions=frozenset(LOAD_TIME_METHODS),
    checks_requests=False,
    lacks=_LACKS,
    request_form=_FORM,
    reserved_flags=_RESERVED,
    planned_flags=_PLANNED,
    format_flags=frozenset({"--dtype", "--quantize"}),
    launch_keys=frozenset({"max_queued_requests", "speculation"}),
    speculation_methods=frozenset({SpeculationMethod.NGRAM}),
)
