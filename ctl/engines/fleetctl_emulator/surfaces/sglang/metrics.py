"""SGLang 0.5.23's /metrics: the series that schedulers and routers read; the page of a real one is longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.blocks import BLOCK_TOKENS
from fleetctl_emulator.page import Page
from fleetctl_emulator.sequence import SequenceStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence as Items

    from fleetctl_emulator.page import Family, Summary, Value
    from fleetctl_emulator.scheduler import Scheduler, StepResult
    from fleetctl_emulator.sequence import Sequence

TTFT_BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
E2E_BOUNDS = (*TTFT_BOUNDS, 600, 1200, 1800, 2400)
ITL_BOUNDS = (
    0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200, 0.400,
    0.600, 0.800, 1.000, 2.000, 4.000, 6.000, 8.000,
)  # fmt: skip
QUEUE_BOUNDS = (
    0.0, 0.001, 0.005, 0.010, 0.050, 0.100, 0.200, 0.500, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100,
    200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
)  # fmt: skip
_THROUGHPUT_WINDOW_S = 1.0


class SglangMetrics:
    """Counts as SGLang's collectors do."""

    def __init__(self, scheduler: Scheduler, *, model_name: str, max_model_len: int, started_s: float) -> None:
        self._scheduler = scheduler
        self._page = Page(created_s=started_s)
        self._service = {"model_name": model_name, "engine_type": "unified"}
        self._labels = self._service | {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
        self._add_state()
        self._add_sizes(max_model_len)
        self._add_counts()
        self._throughput = (0.0, 0)  # (window's beginning, tokens in it)

    def stepped(self, result: StepResult) -> None:
        """Count the tokens of an ended step, and the sequences it finished."""
        for sequence in result.admitted:
            self._queue_time.observe(sequence.scheduled_s - sequence.queued_s)
        for sequence in result.prompted:
            self._ttft.summary(self._stream_labels(sequence)).observe(sequence.first_token_s - sequence.arrived_s)
        for sequence in result.sampled:
            if sequence.generated > 1:
                self._itl.observe(sequence.last_token_s - sequence.previous_token_s)
            if sequence.status is SequenceStatus.FINISHED:
                self._finished(sequence, result.at_s)
        if result.admitted:
            looked_up = sum(s.prompt.tokens for s in result.admitted)
            self._hit_rate.set(sum(s.cached_tokens for s in result.admitted) / looked_up)
        self._retracted.set(len(result.preempted))
        self._measure(result.at_s, len(result.sampled))

    def received(self, *, prompt_tokens: int, max_tokens: int) -> None:
        """Nothing: SGLang counts a request when it finishes."""

    def rejected(self) -> None:
        """Count a request that the queue had no place for."""
        self._aborted.add()

    def failed(self, kind: str) -> None:
        """Count a request the engine failed."""
        if kind == "generation":
            self._aborted.add()

    def answered(self, *, route: str, method: str, status: int, took_s: float, sizes: tuple[int, int]) -> None:
        """Count an HTTP exchange."""
        labels = {"endpoint": route, "method": method}
        self._http_requests.value(labels).add()
        self._http_responses.value(labels | {"status_code": str(status)}).add()

    def page(self, *, as_nan: bool = False) -> str:
        """Return the /metrics page."""
        if not self._scheduler.running:
            self._gen_throughput.set(0.0)
        return self._page.write(as_nan=as_nan)

    def _measure(self, now: float, tokens: int) -> None:
        begun, counted = self._throughput
        counted += tokens
        if now - begun >= _THROUGHPUT_WINDOW_S:
            self._gen_throughput.set(counted / (now - begun) if begun else 0.0)
            begun, counted = now, 0
        self._throughput = (begun, counted)

    def _finished(self, sequence: Sequence, now: float) -> None:
        labels = self._stream_labels(sequence)
        self._prompt.value(labels).add(sequence.prompt.tokens)
        self._generation.value(labels).add(sequence.generated)
        self._requests.value(labels).add()
        if sequence.cached_tokens:
            self._cached.value(self._service | {"cache_source": "device"}).add(sequence.cached_tokens)
        self._e2e.summary(labels).observe(now - sequence.arrived_s)
        if sequence.generated > 1:
            decode_s = sequence.last_token_s - sequence.first_token_s
            self._per_token.summary(labels).observe(decode_s / (sequence.generated - 1))

    def _stream_labels(self, sequence: Sequence) -> dict[str, str]:
        return self._service | {"is_streaming": "true" if sequence.is_streamed else "false"}

    def _add_state(self) -> None:
        engine, pool = self._scheduler, self._scheduler.pool
        self._gauge("num_running_reqs", "The number of running requests.", lambda: engine.running)
        self._gauge("num_queue_reqs", "The number of requests in the waiting queue.", lambda: engine.waiting)
        self._gen_throughput = self._gauge("gen_throughput", "The generation throughput (token/s).")
        self._hit_rate = self._gauge("cache_hit_rate", "The prefix cache hit rate.")
        self._gauge("token_usage", "The token usage.", lambda: engine.kv_usage)
        self._gauge("num_used_tokens", "The number of used tokens.", lambda: pool.used * BLOCK_TOKENS)
        text = "Number of free token slots in the KV cache pool."
        self._gauge("kv_available_tokens", text, lambda: (pool.free - pool.cached_idle) * BLOCK_TOKENS)
        text = "Number of evictable (radix-cached) token slots in the KV cache pool."
        self._gauge("kv_evictable_tokens", text, lambda: pool.cached_idle * BLOCK_TOKENS)
        text = "Number of actively used token slots in the KV cache pool."
        self._gauge("kv_used_tokens", text, lambda: pool.used * BLOCK_TOKENS)
        self._retracted = self._gauge("num_retracted_reqs", "The number of retracted requests.")
        self._family("num_retracted_requests_total", "counter", "Total number of retracted requests.").value(
            self._labels, read=lambda: engine.preemptions
        )
        self._queue_time = self._family(
            "queue_time_seconds", "histogram", "Histogram of queueing time in seconds.", QUEUE_BOUNDS
        ).summary(self._labels)

    def _add_sizes(self, max_model_len: int) -> None:
        total = self._scheduler.pool.total
        text = "Maximum total number of tokens in the KV cache pool."
        self._gauge("max_total_num_tokens", text, lambda: total * BLOCK_TOKENS)
        self._gauge("page_size", "KV cache page size in tokens.", lambda: BLOCK_TOKENS)
        self._gauge("num_pages", "Number of KV cache pages.", lambda: total)
        self._gauge("context_len", "Maximum context length.", lambda: max_model_len)

    def _add_counts(self) -> None:
        self._prompt = self._family("prompt_tokens_total", "counter", "Number of prefill tokens processed.")
        self._generation = self._family("generation_tokens_total", "counter", "Number of generation tokens processed.")
        for family in (self._prompt, self._generation):  # there from the first, so that a rate has its beginning
            family.value(self._service | {"is_streaming": "false"})
        text = "Number of cached prompt tokens by source (device/host/storage)."
        self._cached = self._family("cached_tokens_total", "counter", text)
        self._requests = self._family("num_requests_total", "counter", "Number of requests processed.")
        self._aborted = self._family("num_aborted_requests_total", "counter", "Number of requests aborted.").value(
            self._service
        )
        text = "Histogram of time to first token in seconds."
        self._ttft = self._family("time_to_first_token_seconds", "histogram", text, TTFT_BOUNDS)
        self._itl: Summary = self._family(
            "inter_token_latency_seconds", "histogram", "Histogram of inter-token latency in seconds.", ITL_BOUNDS
        ).summary(self._service)
        text = "Per-request TPOT in seconds: (finished_time - first_token_time) / (completion_tokens - 1)."
        self._per_token = self._family("request_time_per_output_token_seconds", "histogram", text, ITL_BOUNDS)
        text = "Histogram of End-to-end request latency in seconds"
        self._e2e = self._family("e2e_request_latency_seconds", "histogram", text, E2E_BOUNDS)
        self._http_requests = self._family("http_requests_total", "counter", "Total number of HTTP requests")
        self._http_responses = self._family("http_responses_total", "counter", "Total number of HTTP responses")

    def _gauge(self, name: str, text: str, read: Callable[[], float] | None = None) -> Value:
        return self._family(name, "gauge", text).value(self._labels, read=read)

    def _family(self, name: str, kind: str, text: str, bounds: Items[float] = ()) -> Family:
        return self._page.family(f"sglang:{name}", kind, text, bounds=bounds)
