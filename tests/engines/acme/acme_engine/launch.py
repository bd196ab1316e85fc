"""Acme's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import weights
from fleetctl.engine_kit.arguments import command_line
from fleetctl.model.catalogue import Precision

if TYPE_CHECKING:
    from fleetctl.model.plan import LaunchSettings

KV_CACHE_DTYPES = {Precision.BF16: "brain16", Precision.FP8: "tiny8"}
LOAD_TIME_METHODS: dict[Precision, str] = {}


def arguments(interpreter: str, settings: LaunchSettings, *, host: str, port: int) -> tuple[str, ...]:
    """Return `python -m acme_server ...` with these settings, listening on host:port."""
    return command_line(
        (interpreter, "-m", "acme_server"),
        {
            "--weights": settings.model,
            "--name": settings.served_name,
            "--slots": settings.max_num_seqs,
            "--cache-format": weights.kv_cache_dtype(settings, KV_CACHE_DTYPES, engine="Acme"),
            "--bind": host,
            "--listen": port,
        },
        settings.extra_args,
    )
