"""What looks like a secret: by its variable's name, by its flag, or by the shape that its issuer gives it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORDS = frozenset(
    {
        "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "KEY", "APIKEY", "CREDENTIAL",
        "CREDENTIALS", "CREDS", "AUTH", "DSN",
    }
)  # fmt: skip
# Each issuer's own documentation of its prefixes; what scanners of repositories look for.
_SHAPES = re.compile(
    r"(?:\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # AWS
    r"|\bhf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|\bsk-[A-Za-z0-9_-]{16,}"  # OpenAI and its like
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}"  # Google
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----)"
)
HIDDEN = "***"
_REFERENCE = re.compile(r"(?:env|file|keyring):")
_USER_INFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/@\s]+@")
_FLAG = re.compile(r"--?(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?P<value>=.*)?", re.DOTALL)


def names_a_secret(variable: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return not _WORDS.isdisjoint(variable.upper().split("_"))


def is_secret_shaped(value: str) -> bool:
    """Whether a text holds what an issuer of secrets would have written."""
    return _SHAPES.search(value) is not None


def secret_argument(arguments: Sequence[str]) -> str:
    """Return the flag that is given a secret on a command line, or what stands for one; empty: there is none."""
    for argument in arguments:
        if is_secret_shaped(argument):
            return _FLAG.sub(r"--\g<name>", argument) if argument.startswith("-") else "an argument"
        flag = _FLAG.fullmatch(argument)
        if flag is not None and _is_secret_flag(flag["name"]):
            return argument.partition("=")[0]
    return ""


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with whatever looks like a secret replaced: by its flag, its name or its shape."""
    found: list[str] = []
    is_secret_next = False
    for argument in arguments:
        flag = _FLAG.fullmatch(argument)
        found.append(HIDDEN if is_secret_next and flag is None else _hidden_in(argument))
        is_secret_next = flag is not None and flag["value"] is None and _is_secret_flag(flag["name"])
    return tuple(found)


def hidden_in_text(text: str) -> str:
    """Return a text with whatever has a secret's shape replaced, and who logs in where in its addresses."""
    return _USER_INFO.sub(rf"\g<scheme>{HIDDEN}@", _SHAPES.sub(HIDDEN, text))


def _hidden_in(argument: str) -> str:
    name, separator, value = argument.partition("=")
    bare = name.lstrip("-")
    if separator and (_is_secret_flag(bare) or names_a_secret(bare.replace("-", "_"))):
        # A reference says where the secret lies, and is none.
        return argument if _REFERENCE.match(value) else f"{name}={HIDDEN}"
    return hidden_in_text(argument)


def _is_secret_flag(name: str) -> bool:
    # `--api-key` and `--hf-token`, but not `--max-tokens`, `--tokenizer` nor `--ssl-keyfile`: a last word of its own.
    return name.upper().replace("_", "-").rpartition("-")[2] in _WORDS
