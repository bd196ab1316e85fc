"""`fleetctl calibrate`."""

import asyncio
from typing import Annotated

import typer

from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, View, emit, lines, section
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.catalogue import Precision
from fleetctl.operations.calibrating import CalibrationReport, CalibrationRequest, calibrate as calibrate_engine
from fleetctl.units import format_duration, format_fraction, parse_duration_s
from fleetctl.views.table import text_table


def calibrate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="URL|FILE",
            help="A live vLLM, or the JSON of vllm bench serve, guidellm or aiperf.",
        ),
    ],
    *,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What profiles call it (capacity.calibration).")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="GPU", help="The GPU it ran on, as in gpus.yaml.")],
    model: Annotated[str, typer.Option("--model", metavar="ID", help="The model it served, as in the catalogue.")],
    tensor_parallel: Annotated[int, typer.Option("--tensor-parallel", min=1, help="Over how many GPUs.")] = 1,
    quantization: Annotated[
        Precision | None, typer.Option("--quantization", help="Format of the weights. Default: the checkpoint's own.")
    ] = None,
    batched_tokens: Annotated[
        int, typer.Option("--max-num-batched-tokens", min=16, help="As the engine was started with.")
    ] = 2048,
    window: Annotated[
        str, typer.Option("--window", metavar="DURATION", help="How long a live engine is looked at, under load.")
    ] = "30s",
    output: Output = Format.TABLE,
) -> None:
    """Refit the performance model to one's own engine, under a name that a profile may give.

    Two factors are fitted, on what kernels achieve of the GPU's memory and compute. Of six rows and more every second is held
    out, and says how wide a plan's intervals are; with fewer they are those of a GPU that was not measured. Runs should lie
    below the knee: a TTFT that is mostly queue is no prompt's.
    """
    request = CalibrationRequest(
        source=source,
        name=name,
        gpu=gpu,
        model=model,
        tensor_parallel=tensor_parallel,
        quantization=quantization,
        batched_tokens_max=batched_tokens,
        window_s=parse_duration_s(window),
    )
    emit(_view(asyncio.run(calibrate_engine(request, SYSTEM_CLOCK))), output)


def _view(report: CalibrationReport) -> View:
    rows = tuple(
        (
            f"{row.prompt_tokens:.0f}/{row.output_tokens:.0f}", f"{row.decoding:.1f}", format_duration(row.tpot_s),
            format_duration(row.tpot_before_s), format_duration(row.tpot_after_s),
            "-" if row.ttft_s is None else format_duration(row.ttft_s), format_duration(row.ttft_before_s),
            format_duration(row.ttft_after_s),
        )
        for row in report.rows
    )  # fmt: skip
    columns = "TOKENS >DECODING >TPOT >BEFORE >AFTER >TTFT >BEFORE >AFTER"
    judged = (
        f"{report.judged} rows held out: nine of ten within {format_fraction(report.tpot_error)} (TPOT), "
        f"{format_fraction(report.ttft_error)} (TTFT)"
        if report.judged
        else "no row held out: intervals stay those of a GPU that was not measured"
    )
    boundary = (
        "Prompts are of one kind: no boundary between short and long."
        if report.short_below_tokens is None
        else f"Short and long prompts part at {report.short_below_tokens} tokens (match: {{uncached_prompt_tokens: "
        f'"< {report.short_below_tokens}"}}).'
    )
    summary = lines(
        f"{report.gpu} by {report.tool}: {report.fitted} rows fitted, {judged}.",
        boundary,
        f"Written to {report.file}; a profile names it: capacity: {{calibration: {report.name}}}.",
    )
    return View(value=report, names=(report.name,), sections=(section(text_table(columns, rows)), summary))
