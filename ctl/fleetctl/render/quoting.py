"""Writes strings so that sh, systemd, compose and JSON read back exactly what was meant.

Each function returns `Quoted`, and the renderer prints nothing else: a template that forgets to quote fails to render
instead of producing a file that a model's name can inject directives into.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import TYPE_CHECKING

import yaml

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN_COMMENT = re.compile(r"[A-Za-z0-9 ._/:@+,=()<>$%-]*[A-Za-z0-9.)]")
_SYSTEMD_PLAIN = re.compile(r"[A-Za-z0-9_./:=@,+-]+")
_SYSTEMD_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\t": r"\t", "\r": r"\r"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Quoted(str):
    """Text that is safe where the function that made it says."""

    __slots__ = ()


def writable(text: str, *, what: str) -> str:
    """Return `text`. Raises ConfigError if no argument, variable or file can hold it."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"{what} {text!r} holds a NUL or half a character", hint="no command line can carry that")
    return text


def variable(name: str) -> Quoted:
    """Return an environment variable's name. Raises ConfigError if sh would not take it as one."""
    if not _VARIABLE.fullmatch(name):
        raise ConfigError(f"{name!r} is not an environment variable's name", hint="letters, digits and _ only")
    return Quoted(name)


def name(text: str) -> Quoted:
    """Return a fleet's, lane's or tag's name, safe everywhere, paths included. Raises ConfigError for anything else."""
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{text!r} cannot name files", hint="use letters, digits, - and _")
    return Quoted(text)


def comment(text: object) -> Quoted:
    """Return text for a `#` comment: one line, and none that ends in a backslash, which some readers continue."""
    plain = str(text)
    return Quoted(plain if _PLAIN_COMMENT.fullmatch(plain) else json.dumps(plain))


def sh(text: str) -> Quoted:
    """Return one word of a POSIX shell command."""
    return Quoted(shlex.quote(text))


def sh_command(arguments: tuple[str, ...]) -> Quoted:
    """Return a whole command, one option a line."""
    return _lines(arguments, sh)


def sh_required(source: str) -> Quoted:
    """Return a word that is the variable's value, and stops the shell if it is not set."""
    return Quoted(f'"${{{variable(source)}:?set it before starting this engine}}"')


def env_value(text: str) -> Quoted:
    """Return a value for a file that sh can source and systemd can read as EnvironmentFile=.

    Inside double quotes both take a backslash before these four characters, and everything else as it stands.
    """
    return Quoted('"' + re.sub(r'(["\\`$])', r"\\\1", text) + '"')


def systemd_word(text: str) -> Quoted:
    """Return one word of a unit's setting: C escapes inside double quotes, and %% for specifiers."""
    if _SYSTEMD_PLAIN.fullmatch(text):
        return Quoted(text)
    escaped = "".join(_systemd_character(character) for character in text)
    return Quoted(f'"{escaped}"'.replace("%", "%%"))


def systemd_argument(text: str) -> Quoted:
    """Return one word of ExecStart=, where $ is for variables too."""
    return Quoted(systemd_word(text).replace("$", "$$"))


def systemd_command(arguments: tuple[str, ...]) -> Quoted:
    """Return a whole command for ExecStart=, found on the service's PATH."""
    if "=" in arguments[0]:
        raise ConfigError(
            f"{arguments[0]!r} holds a =, which env takes for an assignment", hint="link it to another name"
        )
    return Quoted(f"/usr/bin/env {_lines(arguments, systemd_argument)}")


def _lines(arguments: tuple[str, ...], quote: Callable[[str], Quoted]) -> Quoted:
    text = quote(arguments[0])
    for argument in arguments[1:]:
        text = Quoted(text + (" \\\n    " if argument.startswith("-") else " ") + quote(argument))
    return text


def _systemd_character(character: str) -> str:
    if character in _SYSTEMD_ESCAPES:
        return _SYSTEMD_ESCAPES[character]
    return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else character


def yaml_string(text: str) -> Quoted:
    """Return a double-quoted YAML scalar."""
    dumped: str = yaml.safe_dump(text, default_style='"', width=sys.maxsize, allow_unicode=False)
    return Quoted(dumped.removesuffix("\n"))


def compose_string(text: str) -> Quoted:
    """Return a double-quoted YAML scalar in which compose finds no variable to put in."""
    return yaml_string(text.replace("$", "$$"))


def compose_required(source: str) -> Quoted:
    """Return a scalar that compose fills from its own environment, and refuses to start without."""
    return Quoted(f'"${{{variable(source)}:?set it where compose runs}}"')


def json_value(value: object) -> Quoted:
    """Return JSON, indented to stand at the left margin, keys in the order given."""
    return Quoted(json.dumps(value, indent=2, ensure_ascii=True))
