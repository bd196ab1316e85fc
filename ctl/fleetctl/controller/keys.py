"""Resolves references to secrets (env:NAME, file:PATH): API keys into hashes, an engine's environment at the last moment."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.core.admission.keys import GENERATED_CHARS_MIN, scrypt_hash, sha256_hash
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_REFERENCES = ("env:", "file:", "keyring:")


class KeyHashes:
    """Hashes each key once: a slow hash takes tens of milliseconds, and the table is built every tick."""

    def __init__(self, fleet: str, variable: Callable[[str], str]) -> None:
        self._fleet = fleet
        self._variable = variable
        self._known: dict[tuple[str, str], str] = {}

    def of(self, references: tuple[str, ...]) -> tuple[str, ...]:
        """Return the references' hashes. Raises ConfigError naming the one that leads nowhere."""
        return tuple(self._hash(reference, _resolve(reference, "API key", self._variable)) for reference in references)

    def _hash(self, reference: str, key: str) -> str:
        mark = (reference, hashlib.sha256(key.encode()).hexdigest())
        if mark not in self._known:
            # A salt from names keeps the table the same across restarts; each fleet and key still has its own.
            salt = hashlib.sha256(f"{self._fleet}/{reference}".encode()).digest()[:16]
            is_generated = len(key) >= GENERATED_CHARS_MIN
            self._known[mark] = sha256_hash(key) if is_generated else scrypt_hash(key, salt=salt)
        return self._known[mark]


def with_secrets(environ: Mapping[str, str], variable: Callable[[str], str]) -> dict[str, str]:
    """Return an engine's environment with references replaced by what they lead to. Raises ConfigError.

    To be called right before the create: what is stored, journalled or rendered keeps the reference. `variable` says
    what a variable held where `up` ran.
    """
    return {
        name: _resolve(value, f"engine variable {name}", variable) if value.startswith(_REFERENCES) else value
        for name, value in environ.items()
    }


def _resolve(reference: str, what: str, variable: Callable[[str], str]) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        secret = variable(name)
        hint = f"set {name} where `fleetctl up` runs, and run it again; or use file:PATH"
    elif kind == "file":
        try:
            secret = Path(name).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"the {what} {reference!r} cannot be read: {exc}", hint="mend the file") from exc
        hint = "put the secret on the file's only line"
    else:
        raise ConfigError(f"the {what} reference {reference!r} has no known kind", hint="env:NAME or file:PATH")
    if not secret:
        raise ConfigError(f"the {what} {reference!r} is empty", hint=hint)
    return secret
