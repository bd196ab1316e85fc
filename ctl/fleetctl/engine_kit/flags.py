"""The flags an engine's own parser knows, as far as lists of them are kept: `profiles/engine-flags/ENGINE.txt`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from fleetctl import resources
from fleetctl.errors import ConfigError
from fleetctl.paths import config_dir
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleetctl.model.profile import LaneSpec

_KIND = "profiles"
_FLAG = re.compile(r"--?[A-Za-z]")


def flag_errors(lane: LaneSpec) -> Iterator[ConfigError]:
    """Yield the flags in a lane's extra arguments that its engine would refuse at its start; none without a list."""
    known = known_flags(lane.engine)
    for index, word in enumerate(lane.launch.extra_args):
        if known and _FLAG.match(word) and not _is_known(word, known):
            flag = _plain(word)
            yield ConfigError(
                f"lane {lane.name}: {lane.engine} has no flag {flag}{suggest(flag, known)}",
                hint=f"if yours has it, name it in {config_dir() / _KIND / _file(lane.engine)}, one flag a line",
                key=("lanes", lane.name, "launch", "extra_args", index),
            )


def known_flags(engine: str) -> frozenset[str]:
    """Return the flags of an engine by the shipped list and the user's own together; empty: there is no list."""
    found = [path for root in resources.roots(_KIND) if (path := root / _file(engine)).is_file()]
    return frozenset().union(*(_read(path, path.stat().st_mtime_ns) for path in found))


def _file(engine: str) -> str:
    return f"engine-flags/{engine}.txt"


@lru_cache(maxsize=16)
def _read(path: Path, changed_ns: int) -> frozenset[str]:
    """Return the first word of every line that is no comment; `changed_ns` has a changed file read again."""
    del changed_ns
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(line.split()[0] for line in lines if line.strip() and not line.startswith("#"))


def _is_known(word: str, known: frozenset[str]) -> bool:
    """Whether a parser may take a word: as it is, as the start of one flag, or as a short flag with its value behind."""
    flag = _plain(word)
    if flag in known:
        return True
    if not flag.startswith("--"):
        return any(re.fullmatch(r"-[A-Za-z]", name) and flag.startswith(name) for name in known)
    return any(name.startswith(flag) for name in known)


def _plain(word: str) -> str:
    """Return the flag alone: without its value, the key below it, and with dashes."""
    flag = re.split(r"[=.]", word, maxsplit=1)[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag
