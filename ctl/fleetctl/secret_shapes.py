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


def _is_secret_flag(name: str) -> bool:
    # `--api-key` and `--hf-token`, but not `--max-tokens`, `--tokenizer` nor `--ssl-keyfile`: a last word of its own.
    return name.upper().replace("_", "-").rpartition("-")[2] in _WORDS
