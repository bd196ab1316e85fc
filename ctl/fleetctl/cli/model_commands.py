"""`fleetctl model add`."""

from typing import Annotated

import typer

from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, View, emit, lines, section
from fleetctl.operations.model_catalogue import AddedModel, add_model
from fleetctl.views.table import text_table


def add(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A directory with a config.json, that file, or a hub id (ORGANISATION/NAME[@REVISION]).",
        ),
    ],
    *,
    model_id: Annotated[str, typer.Option("--id", metavar="ID", help="Its name in profiles. Default: SOURCE's.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Put it in place of one of that name.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Add a model to your own catalogue (models.yaml), so that a profile may name it by its id.

    Its shape, its parameters and how its weights are quantized (AWQ, GPTQ, FP8, MXFP4, compressed-tensors) are read from
    its config.json: in a directory, in the Hugging Face cache of this machine, or on the hub (HF_ENDPOINT, HF_TOKEN).
    """
    emit(_view(add_model(source, model_id=model_id, force=force)), output)


def _view(added: AddedModel) -> View:
    card = added.card
    row = (
        card.id, f"{card.params / 1e9:.3g}B", f"{card.active_params / 1e9:.3g}B", card.native_precision.value, str(card.num_layers),
        f"{card.num_heads}/{card.num_kv_heads}", str(card.context_tokens_max),
    )  # fmt: skip
    table = text_table("MODEL >PARAMS >ACTIVE WEIGHTS >LAYERS >HEADS/KV >CONTEXT", (row,))
    written = lines(f"Written to {added.file}; a profile names it by model.id, and needs no model.quantization.")
    return View(value=added, names=(card.id,), sections=(section(table), lines(*added.understood), written))
