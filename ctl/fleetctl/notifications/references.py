"""Resolves a notification's secrets at the last moment; what is stored, shown or logged keeps the reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BYTES_MAX = 64 * 1024


def resolve(reference: str, environ: Mapping[str, str]) -> str:
    """Return what a reference leads to, without blanks around it. Raises ConfigError that names the reference alone."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        secret, hint = environ.get(name, "").strip(), f"set {name} where the runbook runs; under cron use file:PATH"
    elif kind == "file":
        secret, hint = _read(Path(name)), "put the secret on the file's only line"
    else:
        raise ConfigError(f"the reference {reference!r} has no known kind", hint="env:NAME or file:PATH")
    if not secret:
        raise ConfigError(f"{reference} is empty", hint=hint)
    if not secret.isprintable():
        raise ConfigError(f"{reference} holds more than one line, or characters that no key has", hint=hint)
    return secret


def _read(path: Path) -> str:
    try:
        with path.expanduser().open("rb") as file:
            return file.read(_BYTES_MAX).decode().strip()
    except (OSError, RuntimeError) as exc:  # RuntimeError: a home that is nobody's
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ConfigError(f"file:{path} cannot be read: {reason}", hint="mend the file") from exc
    except UnicodeDecodeError:
        raise ConfigError(f"file:{path} is no text", hint="put the secret on the file's only line") from None
