"""TGI 3.3.7's /metrics: no model label, durations in 35 geometric buckets, a series only once it was touched.

Left out: tgi_batch_next_size and its 1,024 buckets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.page import Page, Summary
from fleetctl_emulator.sequence import SequenceStatus

if TYPE_CHECKING:
    from fleetctl.core.perf.step import StepBatch
    from fleetctl_emulator.scheduler import Scheduler, StepResult
    from fleetctl_emulator.sequence import Sequence

_DURATION_BOUNDS: tuple[float, ...] = tuple(0.0001 * 1.5**power for power in range(1, 36))
_REQUEST_DURATIONS = {
    "tgi_request_duration": "Total time spent processing the request (e2e latency)",
    "tgi_request_validation_duration": "Time spent validating the request",
    "tgi_request_queue_duration": "Time spent in the queue per request",
    "tgi_request_inference_duration": "Request inference duration",
    "tgi_request_mean_time_per_token_duration": "Mean time per token per request (inter-token latency)",
}
_BATCH_DURATIONS = {
    "tgi_batch_inference_duration": "Batch inference duration",
    "tgi_batch_forward_duration": "Batch forward duration per method (prefill or decode)",
    "tgi_batch_decode_duration": "Time spent decoding a batch per method (prefill or decode)",
    "tgi_batch_filter_duration": "Time spent filtering batches and sending generated tokens per method",
}
# A step's share of time outside the forward pass. TGI's router and shards spend about this on sampling and filtering.
_DECODE_SHARE, _FILTER_SHARE = 0.02, 0.01


class TgiMetrics:
    """Counts as TGI's router does."""

    def __init__(self, scheduler: Scheduler, *, kv_tokens: int, max_input_tokens: int, max_total_tokens: int) -> None:
        self._scheduler = scheduler
        page = self._page = Page(only_touched=True)
        self._requests = page.family("tgi_request_count", "counter", "Total number of requests").value({})
        self._success = page.family("tgi_request_success", "counter", "Number of successful requests").value({})
        self._failure = page.family("tgi_request_failure", "counter", "Number of failed requests")
        self._inferences = page.family("tgi_batch_inference_count", "counter", "Inference calls per method")
        self._inferred = page.family(
            "tgi_batch_inference_success", "counter", "Number of successful inference calls per method"
        )
        self._queue = page.family("tgi_queue_size", "gauge", "Current queue size").value({})
        self._size = page.family("tgi_batch_current_size", "gauge", "Current batch size").value({})
        text = "Maximum tokens for the current batch"
        self._tokens = page.family("tgi_batch_current_max_tokens", "gauge", text).value({})
        text = "Maximum tokens of a batch"
        page.family("tgi_batch_max_total_tokens", "gauge", text).value({}).set(kv_tokens)
        self._durations = {name: self._duration(name, text) for name, text in _REQUEST_DURATIONS.items()}
        self._input = self._tokens_histogram("tgi_request_input_length", "Input token length", max_input_tokens)
        self._generated = self._tokens_histogram("tgi_request_generated_tokens", "Generated tokens", max_total_tokens)
        self._max_new_tokens = self._tokens_histogram(
            "tgi_request_max_new_tokens", "Maximum new tokens", max_total_tokens
        )
        self._batches = {
            name: page.family(name, "histogram", text, bounds=_DURATION_BOUNDS)
            for name, text in _BATCH_DURATIONS.items()
        }
        self._begun: tuple[float, StepBatch] | None = None

    def stepped(self, result: StepResult) -> None:
        """Count the ended step and the sequences it finished."""
        if self._begun is not None:
            begun_s, batch = self._begun
            self._batch_ended(result.at_s - begun_s, batch)
        self._begun = None if result.batch is None else (result.at_s, result.batch)
        for sequence in result.sampled:
            if sequence.status is SequenceStatus.FINISHED:
                self._finished(sequence, result.at_s)
        self._refresh()

    def received(self, *, prompt_tokens: int, max_tokens: int) -> None:
        """Count a validated request."""
        self._requests.add()
        self._input.observe(prompt_tokens)
        self._max_new_tokens.observe(max_tokens)

    def rejected(self) -> None:
        """Count a request over --max-concurrent-requests."""
        self.failed("overloaded")

    def failed(self, kind: str) -> None:
        """Count a request that failed: "validation", "overloaded", "generation", "incomplete"."""
        self._requests.add()
        self._failure.value({"err": kind}).add()

    def answered(self, *, route: str, method: str, status: int, took_s: float, sizes: tuple[int, int]) -> None:
        """Nothing: TGI does not count HTTP exchanges."""

    def page(self, *, as_nan: bool = False) -> str:
        """Return the /metrics page."""
        if self._requests.touched:
            self._refresh()
        return self._page.write(as_nan=as_nan)

    def _refresh(self) -> None:
        self._queue.set(self._scheduler.waiting)
        self._size.set(self._scheduler.running)
        self._tokens.set(sum(s.prompt.tokens + s.output_budget for s in self._scheduler.running_sequences))

    def _batch_ended(self, seconds: float, batch: StepBatch) -> None:
        # A step with both counts as a prefill, in which TGI's chunked prefill carries the decodes along.
        labels = {"method": "prefill" if batch.prefill_tokens else "decode"}
        self._inferences.value(labels).add()
        self._inferred.value(labels).add()
        shares = (1.0, 1.0 - _DECODE_SHARE - _FILTER_SHARE, _DECODE_SHARE, _FILTER_SHARE)
        for family, share in zip(self._batches.values(), shares, strict=True):
            family.summary(labels).observe(seconds * share)

    def _finished(self, sequence: Sequence, now: float) -> None:
        self._success.add()
        inference_s = now - sequence.scheduled_s
        for name, seconds in zip(
            _REQUEST_DURATIONS,
            (
                now - sequence.arrived_s,
                0.0,  # validation is done before a sequence arrives
                sequence.scheduled_s - sequence.queued_s,
                inference_s,
                inference_s / sequence.generated,
            ),
            strict=True,
        ):
            self._durations[name].observe(seconds)
        self._generated.observe(sequence.generated)

    def _duration(self, name: str, text: str) -> Summary:
        return self._page.family(name, "histogram", text, bounds=_DURATION_BOUNDS).summary({})

    def _tokens_histogram(self, name: str, text: str, highest: int) -> Summary:
        bounds = [highest / 100 * (step + 1) for step in range(100)]
        return self._page.family(name, "histogram", f"{text} per request", bounds=bounds).summary({})
