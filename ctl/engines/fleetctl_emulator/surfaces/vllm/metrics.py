"""vLLM 0.32's /metrics: names, order, types, labels and buckets as a real server writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.page import Page, Summary, Value
from fleetctl_emulator.process_metrics import add_process_metrics
from fleetctl_emulator.sequence import SequenceStatus
from fleetctl_emulator.surfaces.vllm.cache_config import CacheConfig, cache_labels
from fleetctl_emulator.surfaces.vllm.http_metrics import HttpMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence as Items

    from fleetctl_emulator.scheduler import Scheduler, StepResult
    from fleetctl_emulator.sequence import Sequence

TTFT_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
# A wait in the queue under 0.3 s is invisible here, as it is in a real vLLM.
LATENCY_BOUNDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
ITERATION_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
_FLOPS_TEXT = "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations)."


def one_two_five(highest: int) -> tuple[int, ...]:
    """Return 1, 2, 5, 10, 20, 50 ... up to `highest`: vLLM's buckets for token counts."""
    return tuple(
        mantissa * 10**power for power in range(10) for mantissa in (1, 2, 5) if mantissa * 10**power <= highest
    )


class VllmMetrics:
    """Counts as vLLM's Prometheus logger does."""

    def __init__(self, scheduler: Scheduler, *, model_name: str, cache: CacheConfig, started_s: float) -> None:
        self._scheduler = scheduler
        self._labels = {"model_name": model_name, "engine": "0"}
        self._model = {"model_name": model_name}
        self._page = Page(created_s=started_s)
        add_process_metrics(self._page, started_s=started_s)
        self._add_utilisation()
        self._add_state()
        self._add_caches()
        self._add_tokens()
        self._add_requests(cache.max_model_len)
        self._page.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig").value(
            cache_labels(cache), read=lambda: 1.0
        )
        self._http = HttpMetrics(self._page)

    def stepped(self, result: StepResult) -> None:
        """Count the tokens of an ended step, and the sequences it finished."""
        if not result.sampled:
            return
        computed = 0
        for sequence in result.prompted:
            computed += self._prompted(sequence)
        self._generated.add(len(result.sampled))
        self._iteration.observe(computed + len(result.sampled))
        for sequence in result.sampled:
            if sequence.generated > 1:
                self._itl.observe(sequence.last_token_s - sequence.previous_token_s)
            if sequence.status is SequenceStatus.FINISHED:
                self._finished(sequence, result.at_s)

    def received(self, *, prompt_tokens: int, max_tokens: int) -> None:
        """Nothing: vLLM counts a request when it finishes."""

    def rejected(self) -> None:
        """Count a request that the queue had no place for."""
        self._rejections.add()

    def failed(self, kind: str) -> None:
        """Count a request the engine failed; vLLM does not count refused input."""
        if kind == "generation":
            self._success["error"].add()

    def answered(self, *, route: str, method: str, status: int, took_s: float, sizes: tuple[int, int]) -> None:
        """Count an HTTP exchange."""
        self._http.answered(route=route, method=method, status=status, took_s=took_s, sizes=sizes)

    def page(self, *, as_nan: bool = False) -> str:
        """Return the /metrics page."""
        return self._page.write(as_nan=as_nan)

    def _prompted(self, sequence: Sequence) -> int:
        prompt, cached = sequence.prompt.tokens, sequence.cached_tokens
        self._prompt.add(prompt)
        self._by_source["local_compute"].add(prompt - cached)
        self._by_source["local_cache_hit"].add(cached)
        self._cached.add(cached)
        self._ttft.observe(sequence.first_token_s - sequence.arrived_s)
        return prompt - cached

    def _finished(self, sequence: Sequence, now: float) -> None:
        # Aborted sequences never come here: a client's disconnect is in no finished counter.
        self._success[sequence.finish_reason].add()
        decode_s = sequence.last_token_s - sequence.first_token_s
        self._seconds["e2e_request_latency_seconds"].observe(now - sequence.arrived_s)
        self._seconds["request_queue_time_seconds"].observe(sequence.scheduled_s - sequence.queued_s)
        self._seconds["request_inference_time_seconds"].observe(sequence.last_token_s - sequence.scheduled_s)
        self._seconds["request_prefill_time_seconds"].observe(sequence.first_token_s - sequence.scheduled_s)
        self._seconds["request_decode_time_seconds"].observe(decode_s)
        self._per_token.observe(decode_s / (sequence.generated - 1) if sequence.generated > 1 else 0.0)
        self._counts["request_prompt_tokens"].observe(sequence.prompt.tokens)
        self._counts["request_generation_tokens"].observe(sequence.generated)
        self._counts["request_max_num_generation_tokens"].observe(sequence.generated)
        self._counts["request_params_max_tokens"].observe(sequence.output_budget)
        self._counts["request_prefill_kv_computed_tokens"].observe(sequence.prompt.tokens - sequence.cached_tokens)
        self._preempted.observe(sequence.preemptions)
        if sequence.choices:
            self._params_n.observe(sequence.choices)

    def _add_utilisation(self) -> None:
        # Zero unless --enable-mfu-metrics, in a real server too.
        self._counter("estimated_flops_per_gpu", _FLOPS_TEXT)
        for direction in ("read", "write"):
            verb = {"read": "read from", "write": "written to"}[direction]
            self._counter(
                f"estimated_{direction}_bytes_per_gpu",
                f"Estimated number of bytes {verb} memory per GPU (for Model Flops Utilization calculations).",
            )

    def _add_state(self) -> None:
        engine = self._scheduler
        self._gauge("num_requests_running", "Number of requests in model execution batches.", lambda: engine.running)
        self._gauge("num_requests_waiting", "Number of requests waiting to be processed.", lambda: engine.waiting)
        by_reason = self._page.family(
            "vllm:num_requests_waiting_by_reason",
            "gauge",
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
            "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
            "Sum of all reasons equals vllm:num_requests_waiting.",
        )
        by_reason.value(self._labels | {"reason": "capacity"}, read=lambda: engine.waiting)
        by_reason.value(self._labels | {"reason": "deferred"})
        sleep = self._page.family(
            "vllm:engine_sleep_state",
            "gauge",
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
            "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        )
        for state in ("awake", "weights_offloaded", "discard_all"):
            sleep.value(self._labels | {"sleep_state": state}).set(1.0 if state == "awake" else 0.0)
        self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", lambda: engine.kv_usage)

    def _add_caches(self) -> None:
        engine = self._scheduler
        tokens = "in terms of number of {} tokens."
        queried, cached = tokens.format("queried"), tokens.format("cached")
        shared = "External prefix cache {} from KV connector cross-instance cache sharing, "
        self._counter("prefix_cache_queries", f"Prefix cache queries, {queried}", lambda: engine.prefix_queries)
        self._counter("prefix_cache_hits", f"Prefix cache hits, {cached}", lambda: engine.prefix_hits)
        self._counter("external_prefix_cache_queries", shared.format("queries") + queried)
        self._counter("external_prefix_cache_hits", shared.format("hits") + cached)
        self._counter("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.")
        self._counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.")

    def _add_tokens(self) -> None:
        engine = self._scheduler
        text = "Cumulative number of preemption from the engine."
        self._counter("num_preemptions", text, lambda: engine.preemptions)
        self._prompt = self._counter("prompt_tokens", "Number of prefill tokens processed.")
        self._by_source = self._counters(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._cached = self._counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).")
        device = self._counters(
            "prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to "
            "DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at "
            "admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
            "source",
            ("device", "host", "p2p", "disk", "external_unspecified"),
        )["device"]
        device.read = lambda: engine.prefix_hits
        self._generated = self._counter("generation_tokens", "Number of generation tokens processed.")

    def _add_requests(self, max_model_len: int) -> None:
        text = "Count of successfully processed requests."
        self._success = self._counters("request_success", text, "finished_reason", FINISH_REASONS)
        rejections = self._page.family(
            "vllm:admission_rejections_total",
            "counter",
            "Number of admission attempts rejected by a queue limit, by reason.",
        )
        self._rejections = rejections.value(self._model | {"reason": "max_num_queued_reqs"})
        rejections.value(self._model | {"reason": "max_num_queued_tokens"})
        tokens = one_two_five(max_model_len)
        prefill = "Number of prefill tokens processed."
        self._counts = {
            "request_prompt_tokens": self._histogram("request_prompt_tokens", prefill, tokens),
            "request_generation_tokens": self._histogram(
                "request_generation_tokens", "Number of generation tokens processed.", tokens
            ),
        }
        self._iteration = self._histogram(
            "iteration_tokens_total", "Histogram of number of tokens per engine_step.", ITERATION_BOUNDS
        )
        self._counts["request_max_num_generation_tokens"] = self._histogram(
            "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", tokens
        )
        text = "Histogram of the n request parameter."
        self._params_n = self._histogram("request_params_n", text, (1, 2, 5, 10, 20))
        self._counts["request_params_max_tokens"] = self._histogram(
            "request_params_max_tokens", "Histogram of the max_tokens request parameter.", tokens
        )
        self._add_latencies(tokens)

    def _add_latencies(self, tokens: Items[int]) -> None:
        seconds = "Histogram of {} in seconds."
        self._ttft = self._histogram("time_to_first_token_seconds", seconds.format("time to first token"), TTFT_BOUNDS)
        self._itl = self._histogram("inter_token_latency_seconds", seconds.format("inter-token latency"), ITL_BOUNDS)
        text = "Histogram of time_per_output_token_seconds per request."
        self._per_token = self._histogram("request_time_per_output_token_seconds", text, ITL_BOUNDS)
        self._seconds = {
            name: self._histogram(name, text, LATENCY_BOUNDS)
            for name, text in (
                ("e2e_request_latency_seconds", seconds.format("e2e request latency")),
                ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request."),
                ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request."),
                ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request."),
                ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request."),
            )
        }
        text = "Histogram of the number of times a request was preempted."
        self._preempted = self._histogram("request_num_preemptions", text, (1, 2, 3, 4, 5, 10, 20))
        text = "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
        self._counts["request_prefill_kv_computed_tokens"] = self._histogram(
            "request_prefill_kv_computed_tokens", text, tokens
        )

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._page.family(f"vllm:{name}", "gauge", text).value(self._labels, read=read)

    def _counter(self, name: str, text: str, read: Callable[[], float] | None = None) -> Value:
        return self._page.family(f"vllm:{name}_total", "counter", text).value(self._labels, read=read)

    def _counters(self, name: str, text: str, label: str, values: Items[str]) -> dict[str, Value]:
        family = self._page.family(f"vllm:{name}_total", "counter", text)
        return {value: family.value(self._labels | {label: value}) for value in values}

    def _histogram(self, name: str, text: str, bounds: Items[float]) -> Summary:
        return self._page.family(f"vllm:{name}", "histogram", text, bounds=bounds).summary(self._labels)
