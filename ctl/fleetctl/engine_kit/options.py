"""What an installed engine's own parser takes, option by option, and what of a command line it would refuse."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from fleetctl.engine_kit.flags import plain
from fleetctl.errors import FleetctlError
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FLAG = re.compile(r"--?[A-Za-z]")
_NAMED_MAX = 80  # choices of a message; no engine has more parsers than that
# By the words that an option took when it was tried (`describe_parser`): what its values are, and how one looks.
_KINDS = (
    (frozenset({"1"}), "a whole number", re.compile(r"[+-]?\d+")),
    (frozenset({"1", "1.5"}), "a number", re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")),
    (frozenset({"1", "1k"}), "a number of tokens or bytes, as 8192 or 8k", re.compile(r"(?i)[+-]?\d+(\.\d+)?([kmgt]i?b?)?|auto")),
)  # fmt: skip
_JSON = frozenset({"{}"})
_ABSENT = frozenset({"", "None"})  # what options that may be left out take besides


class EngineOption(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a parser: its flags, how many values it takes (argparse's nargs, "1" for one), which."""

    flags: tuple[str, ...]
    values: str
    choices: tuple[str, ...] | None
    takes: tuple[str, ...]  # of the words it was tried with


class UnreadableOptionsError(FleetctlError):
    """What should describe a parser does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentFault:
    """A word of a command line that its engine would refuse: which, of which option, and why."""

    index: int
    flag: str  # as the parser spells it; of an unknown one, as it was written
    why: str


class EngineOptions:
    """The options of one installed engine."""

    def __init__(self, options: Sequence[EngineOption]) -> None:
        self._by_flag = {flag: option for option in options for flag in option.flags}

    @classmethod
    def read(cls, text: str) -> EngineOptions:
        """Return the options that `describe_parser` has written. Raises UnreadableOptionsError."""
        try:
            found = msgspec.json.decode(text, type=tuple[EngineOption, ...])
        except msgspec.DecodeError as exc:
            raise UnreadableOptionsError(f"no options of a parser: {exc}") from exc
        if not found:
            raise UnreadableOptionsError("a parser without an option")
        return cls(found)

    @property
    def flags(self) -> frozenset[str]:
        """Return every flag it knows."""
        return frozenset(self._by_flag)

    def faults(self, arguments: Sequence[str]) -> Iterator[ArgumentFault]:
        """Yield what a parser would refuse of a command's words, its program's own left out: unknown flags, wrong values.

        Ranges, and settings that contradict each other, are the engine's own to refuse at its start.
        """
        index = 0
        while index < len(arguments):
            word, place = arguments[index], index
            index += 1
            if not _FLAG.match(word):
                continue
            flag, option = self._find(word)
            if option is None:
                near = suggest(flag, self._by_flag) if flag.startswith("--") else ""
                yield ArgumentFault(index=place, flag=flag, why=f"has no flag {flag}{near}")
                continue
            values, index = _values(word, arguments, index, option)
            if "." in word.partition("=")[0] or (flag not in self._by_flag and not flag.startswith("--")):
                continue  # a key below the option, or a short flag with its value behind it
            if not values and option.values in {"1", "+"}:
                yield ArgumentFault(index=place, flag=_long(option), why=f"needs a value behind {flag}")
            for value in values:
                if why := self._refusal(option, value, arguments):
                    yield ArgumentFault(index=place, flag=_long(option), why=f"takes no {flag} {value}: {why}")

    def _find(self, word: str) -> tuple[str, EngineOption | None]:
        """Return the option that a word is for: as it is, as the start of one flag, or a short flag with its value."""
        flag = plain(word)
        if flag in self._by_flag:
            return flag, self._by_flag[flag]
        if not flag.startswith("--"):
            short = [name for name in self._by_flag if re.fullmatch(r"-[A-Za-z]+", name) and flag.startswith(name)]
            return flag, self._by_flag[max(short, key=len)] if short else None
        starts = {id(option): option for name, option in self._by_flag.items() if name.startswith(flag)}
        return flag, next(iter(starts.values())) if len(starts) == 1 else None

    def _refusal(self, option: EngineOption, value: str, arguments: Sequence[str]) -> str:
        if value in _ABSENT:
            return ""
        if option.choices is not None:
            # A plugin brings names of its own.
            is_open = any(plain(word).endswith("-parser-plugin") for word in arguments if _FLAG.match(word))
            if value in option.choices or (is_open and "-parser" in _long(option)):
                return ""
            known = ", ".join(option.choices[:_NAMED_MAX])
            return f"it knows {known}{suggest(value, option.choices)}"
        taken = frozenset(option.takes)
        for accepted, name, form in _KINDS:
            if taken == accepted and not form.fullmatch(value):
                return f"it has to be {name}"
        return "it has to be JSON" if taken == _JSON and not _is_json(value) else ""


def _values(word: str, arguments: Sequence[str], index: int, option: EngineOption) -> tuple[list[str], int]:
    """Return the values behind an option's word, and where the next word is."""
    if "=" in word:
        return [word.partition("=")[2]], index
    if option.values == "0":
        return [], index
    found: list[str] = []
    while index < len(arguments) and not _FLAG.match(arguments[index]):
        found.append(arguments[index])
        index += 1
        if option.values in {"1", "?"}:
            break
    return found, index


def _long(option: EngineOption) -> str:
    return next((flag for flag in option.flags if flag.startswith("--")), option.flags[0])


def _is_json(value: str) -> bool:
    try:
        msgspec.json.decode(value)
    except msgspec.DecodeError:
        return False
    return True
