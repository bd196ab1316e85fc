"""`fleetctl model` and its commands."""

from __future__ import annotations

from fleetctl.cli.lazy import Effect, nested_group

_ROWS = (
    (
        "Change",
        "add",
        "Add a model to your own catalogue by its config.json: a directory, or a hub id.",
        "model_commands:add",
        Effect.WRITES_FILES,
    ),
)

GROUP = nested_group("model", "Add models to the catalogue that plans are made by.", _ROWS)
