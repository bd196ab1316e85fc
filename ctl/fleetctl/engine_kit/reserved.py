"""Why some flags of an engine are fleetctl's alone, and what to do in place of each."""

from __future__ import annotations

# The profile's keys of the sizes that a plan is made by: an engine's own flag for one would change them behind its back.
SEQS = "launch.max_num_seqs"
LENGTH = "launch.max_model_len"
STEP_TOKENS = "launch.max_num_batched_tokens"
MEMORY_SHARE = "launch.gpu_memory_utilization"
KV_FORMAT = "model.kv_cache"
PREFIXES = "launch.prefix_caching"

LISTENS = "leave it out: fleetctl chooses where each replica listens, and reaches it there"
TRANSPORT = "leave it out: gateway and probes reach an engine by plain HTTP at its own paths"
OFFLOAD = (
    "leave it out: the plan reckons with all weights in GPU memory and at its speed; say model.quantization, a larger GPU "
    "(capacity.gpus) or launch.tensor_parallel"
)
PROCESSES = "leave it out: an engine starts its own processes on the GPUs that its replica is given"
MODEL = "say it in the profile: model.id, model.path or lanes.NAME.weights"
SERVED_NAME = "say it in the profile: model.served_name"
KEY = "leave it out: whoever lists processes reads arguments; engines get their keys by their environment"
TENSOR_PARALLEL = "say it in the profile: launch.tensor_parallel, which is planned, placed and priced"
PIPELINE_PARALLEL = (
    "say it in the profile: launch.pipeline_parallel_local on one machine, launch.pipeline_parallel across machines, which "
    "are planned, placed and priced"
)
DATA_PARALLEL = (
    "say it in the profile: launch.data_parallel, which is planned, placed and priced; or leave it to lanes.NAME.replicas, "
    "which are routed to one by one"
)
GROUP = "leave it out: fleetctl joins the machines of a replica itself (launch.pipeline_parallel)"
METRICS = "leave it out: without its metrics nobody sees how loaded an engine is"
EXPERT_PARALLEL = "say it in the profile: launch.expert_parallel"
GPUS = "leave it out: each replica is given GPUs of its own, and the engine sees only those"
FILE = "say each of them in the profile or in extra_args: what a file says is seen by no plan"
KV_SPACE = "say launch.gpu_memory_utilization in the profile: the plan reckons with the KV cache that follows from it"
