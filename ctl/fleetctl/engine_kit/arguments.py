"""Puts an engine's command line together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# A flag's value, or several; True is a flag without one; None, False and no values at all leave the flag out.
Options = dict[str, str | int | float | bool | tuple[str, ...] | None]


def command_line(
    command: tuple[str, ...], options: Options, extra: tuple[str, ...], *, same: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return `command`, the options, and the user's own arguments after them, as they are.

    An option the user gives too is left to the user: some parsers take the last of two, some refuse both. `same` maps
    other spellings of a flag to the one in `options` (short forms, `--no-x` for `--x`).
    """
    given = {word.split("=", 1)[0].replace("_", "-") for word in extra if word.startswith("-")}
    given |= {(same or {}).get(word, word) for word in given}
    argv = [*command]
    for flag, value in options.items():
        if value is None or value is False or value == () or flag in given:
            continue
        argv.append(flag)
        if isinstance(value, tuple):
            argv += value
        elif value is not True:
            argv.append(_spell(value))
    return (*argv, *extra)


def _spell(value: str | float) -> str:
    # repr of a float is its shortest exact spelling; an exponent would be legal for every parser but unusual to read.
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
