"""Profiles with one thing wrong each: what `validate` and `plan` must both refuse, with its line and key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fleetctl.config.use_cases import starter


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The chat starter with one change."""

    old: str
    new: str
    key: str
    says: str
    code: int = 3
    also: tuple[str, str] = ("", "")  # another change that it takes
    at: str = ""  # what stands on the line of the fault; empty: `new`'s first line

    @property
    def text(self) -> str:
        assert self.old in chat(), self.old
        return chat().replace(self.old, self.new, 1).replace(*self.also, 1)

    @property
    def line(self) -> int:
        wanted = self.at or self.new.splitlines()[0]
        return next(number for number, line in enumerate(self.text.splitlines(), 1) if wanted in line)


@cache
def chat() -> str:
    return starter("chat")


_SHORT = 'match: {uncached_prompt_tokens: "< 1024", stream: true}'
_BOUNDS = "replicas: {min: 2, max: 6}"
_CAPS = "max_cost_per_hour: $40, max_nodes: 16"


def _launch(settings: str) -> str:
    return f"{_SHORT}\n    launch: {{{settings}}}"


BROKEN = {
    # names
    "model": Broken(old="Llama-3.1-8B", new="Lama-3.1-8B", key="model.id", says="did you mean 'meta-llama/Llama-3.1-8B-Instruct'"),
    "gpu": Broken(old="[L40S]", new="[L40]", key="capacity.gpus[0]", says="did you mean 'L40S'"),
    "second gpu": Broken(old="[L40S]", new="[L40S, H10]", key="capacity.gpus[1]", says="did you mean 'H100'"),
    "provider": Broken(old="provider: local", new="provider: locl", key="provider", says="did you mean 'local'"),
    "engine": Broken(old="engine: emulator", new="engine: vlm", key="engine", says="did you mean 'vllm'"),
    "policy": Broken(old="gateway: {", new="control: {policy: builtin}\ngateway: {", key="control.policy", says="did you mean 'built-in'"),
    "key": Broken(old="max_wait: 200ms", new="max_wiat: 200ms", key="lanes.short.max_wiat", says="did you mean 'max_wait'"),
    # lanes
    "swallowed lane": Broken(old=_SHORT, new="match: {}", key="lanes.long.match", says="short takes all that it matches", at="  long:"),
    "swallowed lane, narrower": Broken(
        old="    slo:\n      ttft: {p50: 500ms", new='    match: {uncached_prompt_tokens: "< 100", stream: true}\n    slo:\n      ttft: {p50: 500ms',
        key="lanes.long.match", says="no request would ever enter lane long", at='"< 100"',
    ),
    "second batch lane": Broken(
        old="capacity: {", new="  nightly: {match: {batch: true}, slo: {completion: {p95: 4h}}, max_wait: 1m}\ncapacity: {",
        key="lanes.nightly.match", says="batch takes all that it matches",
    ),
    # promises below what model and GPU can give
    "ttft floor": Broken(old="ttft: {p99: 300ms}", new="ttft: {p99: 1ms}", key="lanes.short.slo.ttft.p99", says="the best possible is", code=4),
    "itl floor": Broken(old="itl: {p99: 50ms}", new="itl: {p99: 1ms}", key="lanes.short.slo.itl.p99", says="the best possible is", code=4),
    "e2e floor": Broken(old="e2e: {p99: 30s}", new="e2e: {p99: 900ms}", key="lanes.long.slo.e2e.p99", says="the best possible is", code=4),
    # bounds and caps too low for the load
    "replicas.max": Broken(old="peak_rps: 8", new="peak_rps: 300", key="lanes.short.replicas.max", says="replicas.max is 6", code=4, at=_BOUNDS),
    "max_cost": Broken(old=_CAPS, new="max_cost_per_hour: $1, max_nodes: 16", key="capacity.max_cost_per_hour", says="the cheapest plan costs", code=6),
    "max_nodes": Broken(old=_CAPS, new="max_cost_per_hour: $40, max_nodes: 3", key="capacity.max_nodes", says="the plan with the fewest nodes needs 5", code=6),
    "nodes by load": Broken(
        old=_CAPS, new="max_cost_per_hour: $40, max_nodes: 5", key="capacity.max_nodes", says="capacity.max_nodes is 5", code=6, also=("peak_rps: 8", "peak_rps: 40"),
    ),
    "max_model_len over the model's": Broken(
        old=_SHORT, new=_launch("max_model_len: 200000"), key="lanes.short.launch.max_model_len", says="takes 131,072 tokens", code=4, at="200000",
    ),
    "kv cache": Broken(
        old=_SHORT, new=_launch("tensor_parallel: 1, gpu_memory_utilization: 0.15"), key="lanes.short.launch.gpu_memory_utilization",
        says="pinned to 0.15", code=4, at="0.15}",
    ),
    "chunk": Broken(
        old=_SHORT, new=_launch("max_num_batched_tokens: 1"), key="lanes.short.launch.max_num_batched_tokens", says="pinned to 1", code=4, at=": 1}",
    ),
    # what the engine refuses
    "engine flag": Broken(
        old=_SHORT, new=f"engine: vllm\n    {_launch('extra_args: [--enable-eplbb]')}", key="lanes.short.launch.extra_args[0]",
        says="vllm has no flag --enable-eplbb (did you mean '--enable-eplb'?)", at="eplbb",
    ),
    "tgi flag": Broken(
        old=_SHORT, new=f"engine: tgi\n    {_launch('extra_args: [--max-num-seqs=4]')}", key="lanes.short.launch.extra_args[0]",
        says="tgi has no flag --max-num-seqs", at="--max-num-seqs",
    ),
    "flag of ours": Broken(
        old=_SHORT, new=f"engine: vllm\n    {_launch('extra_args: [--port=9999]')}", key="lanes.short.launch.extra_args[0]",
        says="--port of vllm is set by fleetctl itself", at="--port",
    ),
    "flag for a planned size": Broken(
        old=_SHORT, new=f"engine: vllm\n    {_launch('extra_args: [--max-num-seqs=4]')}", key="lanes.short.launch.extra_args[0]",
        says="--max-num-seqs of vllm would change a size that the plan is made by", at="--max-num-seqs",
    ),
    "more sequences than tokens": Broken(
        old=_SHORT, new=_launch("max_num_seqs: 256, max_num_batched_tokens: 128"), key="lanes.short.launch",
        says="max_num_seqs (256) is above max_num_batched_tokens (128)", at="launch",
    ),
    "kv format": Broken(
        old="quantization: fp8}", new="quantization: bf16, kv_cache: int4}", key="model.kv_cache", says="tgi has no int4 KV cache", also=("engine: emulator", "engine: tgi"), at="kv_cache",
    ),
    "precision": Broken(
        old="quantization: fp8}", new="quantization: int4}", key="model.quantization", says="vllm cannot quantize", also=("engine: emulator", "engine: vllm"), at="int4",
    ),
    "machines": Broken(
        old=_SHORT, new=_launch("pipeline_parallel: 2"), key="lanes.short.launch.pipeline_parallel", says="gives no groups of machines", at="pipeline",
    ),
    "keyring": Broken(old="port: 8080}", new='port: 8080, api_keys: ["keyring:a/b"]}', key="gateway.api_keys[0]", says="cannot be followed"),
    # what does not fit, or is not sold
    "gpu memory": Broken(old="Llama-3.1-8B", new="Llama-3.1-70B", key="capacity.gpus", says="for its weights", code=4, also=(_SHORT, _launch("tensor_parallel: 1")), at="gpus:"),
    "tensor_parallel": Broken(
        old=_SHORT, new=_launch("tensor_parallel: 16"), key="lanes.short.launch.tensor_parallel", says="8 GPUs at most", code=4, at="16}",
    ),
    "attention heads": Broken(
        old=_SHORT, new=_launch("tensor_parallel: 3"), key="lanes.short.launch.tensor_parallel", says="32 attention heads", code=4, at="3}",
    ),
    "gpu not sold": Broken(old="[L40S]", new="[MI300X]", key="capacity.gpus", says="nothing on offer matches MI300X", code=4),
    "region": Broken(old=_CAPS, new=f"region: nowhere, {_CAPS}", key="capacity.region", says="nothing on offer matches nowhere", code=4),
    "zone": Broken(old=_CAPS, new=f"zones: [moon-1a], {_CAPS}", key="capacity.zones", says="nothing on offer matches moon-1a", code=4),
    "weights in S3": Broken(
        old="quantization: fp8}", new="quantization: fp8, path: s3://team/llama/8b}", key="model.path", says="provider local fetch none from S3",
    ),
    "no place in S3": Broken(
        old="quantization: fp8}", new="quantization: fp8, path: s3://team}", key="model.path", says="write s3://BUCKET/PREFIX",
    ),
    "a file in S3": Broken(
        old="quantization: fp8}", new="quantization: fp8, path: s3://team/llama.gguf}", key="model.path", says="no GGUF file",
    ),
    "no such weights": Broken(
        old="quantization: fp8}", new="quantization: fp8, path: nowhere/at/all}", key="model.path", says="no model configuration", code=8,
    ),
}  # fmt: skip
