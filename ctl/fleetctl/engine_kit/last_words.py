"""Finds in the end of an engine's log the line that says why it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.engine_fault import EngineFault, EngineFaultKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LINE_MAX = 240
# Colours and cursor movements are no words.
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
# What loggers put before the words: "(EngineCore_0 pid=7) ERROR 11-22 09:19:01 [core.py:708] ", "0.00.011.910 E ".
_PREFIX = re.compile(
    r"^(?:\d+\.\d{2}\.\d{3}\.\d{3} [EWIDT] )?(?:\([^)]*pid=\d+\)\s*)?(?:(?:ERROR|CRITICAL)\s+[\d\-: .,]+(?:\[[^\]]*\]\s*)?)?(?:\[rank\d+\]:\s*)?"
)


@dataclass(frozen=True, slots=True)
class LastWords:
    """A kind of fault and how an engine words it: a regular expression that is looked for in each line.

    Where the line alone does not say it, `within` must be found in the log too, and `meaning` is put before the line.
    """

    kind: EngineFaultKind
    pattern: str
    within: str = ""
    meaning: str = ""


COMMON = (
    LastWords(
        EngineFaultKind.ARGUMENTS,
        r"error: (?:unrecognized arguments|argument \S+|the following arguments are required)",
    ),
    # What a node says that fetches weights before its engine starts.
    LastWords(EngineFaultKind.PROGRAM, r"^weights at \S+ were not fetched: no aws"),
    LastWords(EngineFaultKind.STORAGE, r"^weights at \S+ were not fetched: disk full"),
    LastWords(
        EngineFaultKind.HUB_ACCESS,
        r"^weights at \S+ were not fetched: (?:AccessDenied|AllAccessDisabled|NoSuchBucket|InvalidObjectState|no files)",
    ),
    LastWords(EngineFaultKind.HUB_ACCESS, r"is not a local folder and is not a valid model identifier"),
    LastWords(EngineFaultKind.HUB_ACCESS, r"GatedRepoError|Cannot access gated repo|trying to access a gated repo\."),
    LastWords(EngineFaultKind.HUB_ACCESS, r"RepositoryNotFoundError|Repository Not Found|401 Client Error"),
    LastWords(
        EngineFaultKind.ACCELERATOR, r"No CUDA GPUs are available|CUDA driver version is insufficient|no NVIDIA driver"
    ),
    LastWords(EngineFaultKind.MEMORY, r"CUDA out of memory|OutOfMemoryError|Cannot allocate memory|MemoryError"),
    LastWords(EngineFaultKind.PORT, r"[Aa]ddress already in use"),
    LastWords(EngineFaultKind.STORAGE, r"No space left on device|Read-only file system|Disk quota exceeded"),
    LastWords(EngineFaultKind.STORAGE, r"^PermissionError: \[Errno 13\]"),
    LastWords(EngineFaultKind.PROGRAM, r"No module named|ModuleNotFoundError|command not found|ImportError: lib\S+"),
)
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception|Exit)\b|.*\berror:|.*\bpanicked at\b|Error:)")


def last_words(log_tail: str, patterns: Sequence[LastWords], *, echoes: str = "") -> EngineFault | None:
    """Return what the end of a log says went wrong; None: it says nothing at all.

    The last line that matches the first pattern to match any is taken, else the last line that looks like an error, an
    echo only where nothing else does, else the last. `echoes` matches lines that only say that something else failed.
    """
    lines = [line for raw in log_tail.splitlines() if (line := _plain(raw))]
    causes = [line for line in lines if not (echoes and re.search(echoes, line))]
    for each in (*patterns, *COMMON):
        found = _last(causes, re.compile(each.pattern))
        if found and re.search(each.within, log_tail):
            return EngineFault(kind=each.kind, line=cut(f"{each.meaning}: {found}") if each.meaning else found)
    line = _last(causes, _ERROR) or _last(lines, _ERROR) or next(reversed(lines), "")
    return EngineFault(kind=EngineFaultKind.UNKNOWN, line=line) if line else None


def last_line(log_tail: str) -> str:
    """Return the last line of a log that says anything, as it is shown; empty: none does."""
    return next((line for raw in reversed(log_tail.splitlines()) if (line := _plain(raw))), "")


def _last(lines: Iterable[str], pattern: re.Pattern[str]) -> str:
    return next((line for line in reversed(list(lines)) if pattern.search(line)), "")


def _plain(raw: str) -> str:
    """Return a line without control characters and without what its logger put before it, cut in length."""
    text = "".join(each if each.isprintable() else " " for each in _CONTROL.sub("", raw[: 8 * _LINE_MAX]))
    return cut(_PREFIX.sub("", text.strip()).strip())


def cut(line: str) -> str:
    """Return a line at most as long as one is shown."""
    return line if len(line) <= _LINE_MAX else line[: _LINE_MAX - 1] + "…"
