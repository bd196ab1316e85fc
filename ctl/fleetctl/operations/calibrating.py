"""Refits the performance model to one's own engine: a live one's metrics, or what a benchmark wrote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.catalogue.calibrations import Calibration, save
from fleetctl.catalogue.known import load_catalogue
from fleetctl.core.perf.calibration import (
    EngineInstanceShape,
    MeasuredLoad,
    Refit,
    length_boundary,
    modelled_tpot_s,
    modelled_ttft_s,
    refit,
)
from fleetctl.core.perf.kv import kv_precision_of
from fleetctl.core.perf.step import StepModel, step_model
from fleetctl.errors import ConfigError, NotFoundError, ProviderError
from fleetctl.model.catalogue import Precision
from fleetctl.operations.benchmark_files import read_benchmark
from fleetctl.operations.engine_metrics import engine_window
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.clock import Clock
    from fleetctl.model.catalogue import GpuSpec, ModelCard

_DEADLINE_S = 20.0
_PAGE_BYTES_MAX = 16 * 1024 * 1024
_REQUESTS_MIN = 20  # of a window of live traffic
# Upper bounds that single lengths are counted by: an eighth of an octave each, 16 to a million tokens.
_BOUNDS = tuple(16 * 2 ** (step / 8) for step in range(129))


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRow:
    """One measured load, and what the model says of it before and after, in seconds."""

    prompt_tokens: float
    output_tokens: float
    decoding: float
    tpot_s: float
    tpot_before_s: float
    tpot_after_s: float
    ttft_s: float | None
    ttft_before_s: float
    ttft_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """What was measured, what follows, and where it was written."""

    name: str
    gpu: str
    model: str
    tool: str  # that measured
    rows: tuple[CalibrationRow, ...]
    fitted: int
    judged: int  # rows held out, which the errors are of
    tpot_error: float
    ttft_error: float
    short_below_tokens: int | None
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """What to refit to, and of which instance it is."""

    source: str
    name: str
    gpu: str
    model: str
    tensor_parallel: int = 1
    quantization: Precision | None = None  # None: the checkpoint's own
    window_s: float = 30.0  # between two looks at a live engine
    batched_tokens_max: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    tool: str
    loads: tuple[MeasuredLoad, ...]
    prompts: tuple[tuple[float, float], ...]


async def calibrate(request: CalibrationRequest, clock: Clock) -> CalibrationReport:
    """Refit, and write the calibration by its name.

    Raises NotFoundError (no such GPU, model or file), ConfigError (nothing that can be read), ProviderError (no answer).
    """
    shape = _shape(request)
    is_url = request.source.startswith(("http://", "https://"))
    measured = await _live(request, clock) if is_url else _from_file(Path(request.source))
    day = f"{clock.now():%Y-%m-%d}"
    source = f"{measured.tool}, {request.model} at tensor parallel {request.tensor_parallel}, {day}"
    found = refit(shape, measured.loads, source=source)
    achieved = replace(found.achieved, tpot_error=found.tpot_error, ttft_error=found.ttft_error)
    boundary = length_boundary(measured.prompts)
    short_below = None if boundary is None else round(boundary)
    file = save(
        request.name,
        Calibration(
            gpu=request.gpu,
            model=request.model,
            tensor_parallel=request.tensor_parallel,
            quantization=shape.precision.value,
            achieved=achieved,
            short_below_tokens=short_below,
        ),
    )
    return CalibrationReport(
        name=request.name,
        gpu=request.gpu,
        model=request.model,
        tool=measured.tool,
        rows=_rows(shape, found, measured.loads),
        fitted=found.fitted,
        judged=found.judged,
        tpot_error=found.tpot_error,
        ttft_error=found.ttft_error,
        short_below_tokens=short_below,
        file=str(file),
    )


def _shape(request: CalibrationRequest) -> EngineInstanceShape:
    catalogue = load_catalogue()
    gpu: GpuSpec | None = catalogue.gpus.get(request.gpu)
    card: ModelCard | None = catalogue.models.get(request.model)
    if gpu is None:
        raise NotFoundError(f"the GPU {request.gpu!r} is in no gpus.yaml{suggest(request.gpu, catalogue.gpus)}")
    if card is None:
        raise NotFoundError(
            f"the model {request.model!r} is not in the catalogue{suggest(request.model, catalogue.models)}",
            hint="add it with `fleetctl model add`",
        )
    return EngineInstanceShape(
        card=card,
        gpu=gpu,
        tensor_parallel=request.tensor_parallel,
        precision=card.loaded_as(request.quantization or card.native_precision),
        kv_precision=kv_precision_of(card, card.kv_cache),
        batched_tokens_max=request.batched_tokens_max,
    )


def _from_file(path: Path) -> _Measured:
    tool, loads, lengths = read_benchmark(path)
    counts = [0] * len(_BOUNDS)
    for length in lengths:
        counts[next((index for index, bound in enumerate(_BOUNDS) if length <= bound), -1)] += 1
    return _Measured(tool=tool, loads=loads, prompts=tuple(zip(_BOUNDS, counts, strict=True)))


async def _live(request: CalibrationRequest, clock: Clock) -> _Measured:
    before, began = await _page(request.source), clock.monotonic_s()
    await clock.sleep(request.window_s)
    after, ended = await _page(request.source), clock.monotonic_s()
    window = engine_window(before, after, ended - began)
    if window.load is None or window.requests < _REQUESTS_MIN:
        raise ConfigError(
            f"{request.source} answered {window.requests} requests in {request.window_s:g} s, too few to calibrate by",
            hint=f"send it load meanwhile, {_REQUESTS_MIN} requests at least, or look longer (--window)",
        )
    return _Measured(tool="vLLM's /metrics", loads=(window.load,), prompts=window.prompts)


async def _page(url: str) -> str:
    import httpx

    address = url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"
    try:
        async with httpx.AsyncClient(timeout=_DEADLINE_S) as client:
            response = await client.get(address)
    except httpx.HTTPError as exc:
        raise ProviderError(f"{address} does not answer: {exc}", hint="give the engine's own address") from exc
    if response.status_code != 200 or len(response.content) > _PAGE_BYTES_MAX:
        raise ProviderError(f"{address} answers {response.status_code}, {len(response.content)} bytes")
    if "\nvllm:" not in f"\n{response.text}":
        raise ConfigError(f"{address} has no series of vLLM's", hint="calibrate by a benchmark's file instead")
    return response.text


def _rows(shape: EngineInstanceShape, found: Refit, loads: Sequence[MeasuredLoad]) -> tuple[CalibrationRow, ...]:
    before, after = (_step(shape, gpu) for gpu in (shape.gpu, replace(shape.gpu, achieved=found.achieved)))
    chunk = shape.batched_tokens_max
    return tuple(
        CalibrationRow(
            prompt_tokens=load.prompt_tokens,
            output_tokens=load.output_tokens,
            decoding=load.decoding,
            tpot_s=load.tpot_s,
            tpot_before_s=modelled_tpot_s(before, load, chunk),
            tpot_after_s=modelled_tpot_s(after, load, chunk),
            ttft_s=load.ttft_s,
            ttft_before_s=modelled_ttft_s(before, load, chunk),
            ttft_after_s=modelled_ttft_s(after, load, chunk),
        )
        for load in loads
    )


def _step(shape: EngineInstanceShape, gpu: GpuSpec) -> StepModel:
    return step_model(
        shape.card,
        gpu,
        tensor_parallel=shape.tensor_parallel,
        precision=shape.precision,
        kv_precision=shape.kv_precision,
    )
