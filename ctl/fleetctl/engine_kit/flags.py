"""The flags an engine's own parser knows, as far as lists of them are kept: `profiles/engine-flags/ENGINE.txt`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from fleetctl import resources
from fleetctl.engine_kit.versions import version_in
from fleetctl.errors import ConfigError
from fleetctl.paths import config_dir
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fleetctl.model.catalogue import Precision
    from fleetctl.model.profile import LaneSpec
    from fleetctl.ports.engine import EngineCapabilities

_KIND = "profiles"
_FLAG = re.compile(r"--?[A-Za-z]")
_SHORT = 3  # "--p" may be anything


def flag_errors(lane: LaneSpec) -> Iterator[ConfigError]:
    """Yield the flags in a lane's extra arguments that its engine would refuse at its start; none without a list."""
    known = known_flags(lane.engine)
    for index, word in enumerate(lane.launch.extra_args):
        if known and _FLAG.match(word) and not _is_known(word, known):
            flag = plain(word)
            yield ConfigError(
                f"lane {lane.name}: {lane.engine} has no flag {flag}{suggest(flag, known)}",
                hint=f"if yours has it, name it in {config_dir() / _KIND / _file(lane.engine)}, one flag a line",
                key=("lanes", lane.name, "launch", "extra_args", index),
            )


def reserved_errors(lane: LaneSpec, capabilities: EngineCapabilities) -> Iterator[ConfigError]:
    """Yield the flags in a lane's extra arguments that are fleetctl's alone: where an engine listens, what it is called."""
    known = known_flags(lane.engine)
    for index, word in enumerate(lane.launch.extra_args):
        flag = _reserved(word, known, capabilities.reserved_flags)
        if flag:
            yield ConfigError(
                f"lane {lane.name}: {plain(word)} of {lane.engine} is set by fleetctl itself",
                hint=capabilities.reserved_flags[flag],
                key=("lanes", lane.name, "launch", "extra_args", index),
            )


def gpu_errors(lane: LaneSpec, capabilities: EngineCapabilities) -> Iterator[ConfigError]:
    """Yield the flags in the extra arguments of a lane with GPUs that change what its replicas make of them."""
    known = known_flags(lane.engine)
    for index, word in enumerate(lane.launch.extra_args):
        flag = _reserved(word, known, capabilities.gpu_flags)
        if flag:
            yield ConfigError(
                f"lane {lane.name}: {plain(word)} of {lane.engine} would change what the plan reckons with on its GPUs",
                hint=capabilities.gpu_flags[flag],
                key=("lanes", lane.name, "launch", "extra_args", index),
            )


def planned_errors(lane: LaneSpec, capabilities: EngineCapabilities) -> Iterator[ConfigError]:
    """Yield the flags in a lane's extra arguments that set a size which the plan is made by, each with the key that pins it."""
    known = known_flags(lane.engine)
    for index, word in enumerate(lane.launch.extra_args):
        flag = _reserved(word, known, capabilities.planned_flags)
        if flag:
            key = capabilities.planned_flags[flag]
            whose = f"lanes.{lane.name}.{key}" if key.startswith("launch.") else key
            yield ConfigError(
                f"lane {lane.name}: {plain(word)} of {lane.engine} would change a size that the plan is made by",
                hint=f"pin it where the plan sees it: {whose}",
                key=("lanes", lane.name, "launch", "extra_args", index),
            )


def format_errors(lane: LaneSpec, precision: Precision, capabilities: EngineCapabilities) -> Iterator[ConfigError]:
    """Yield the flags in a lane's extra arguments that would load 16-bit weights in another format than is planned."""
    known, flags = known_flags(lane.engine), dict.fromkeys(capabilities.format_flags, "")
    for index, word in enumerate(lane.launch.extra_args):
        flag = plain(word)
        if not precision.is_quantized and _FLAG.match(word) and (flag in flags or _starts(flag, known, flags)):
            yield ConfigError(
                f"lane {lane.name}: {flag} of {lane.engine} would change the format that the plan reckons with ({precision})",
                hint="say it in the profile: model.quantization",
                key=("lanes", lane.name, "launch", "extra_args", index),
            )


def _starts(flag: str, known: frozenset[str], flags: Mapping[str, str]) -> bool:
    """Whether a parser would take a word for one of these flags by its start."""
    return len(flag) > _SHORT and [name for name in known if name.startswith(flag)] in ([name] for name in flags)


def _reserved(word: str, known: frozenset[str], reserved: Mapping[str, str]) -> str:
    """Return the reserved flag that a parser may take a word for; empty: none."""
    if not _FLAG.match(word):
        return ""
    flag = plain(word)
    if flag in known or flag in reserved:
        return flag if flag in reserved else ""
    if flag.startswith("--"):  # the start of a flag, which parsers take where it is the start of no other
        return next((name for name in sorted(reserved) if name.startswith(flag)), "") if len(flag) > _SHORT else ""
    return next((name for name in reserved if not name.startswith("--") and re.fullmatch(rf"{name}\d+", flag)), "")


def known_flags(engine: str) -> frozenset[str]:
    """Return the flags of an engine by the shipped list and the user's own together; empty: there is no list."""
    found = [path for root in resources.roots(_KIND) if (path := root / _file(engine)).is_file()]
    return frozenset().union(*(_read(path, path.stat().st_mtime_ns) for path in found))


def flags_version(engine: str) -> str:
    """Return the version that the shipped list of an engine's flags is of, by its first line; empty: it names none."""
    paths = [path for root in resources.roots(_KIND) if (path := root / _file(engine)).is_file()]
    return version_in(paths[-1].read_text(encoding="utf-8").partition("\n")[0]) if paths else ""


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
    flag = plain(word)
    if flag in known:
        return True
    if not flag.startswith("--"):
        return any(re.fullmatch(r"-[A-Za-z]", name) and flag.startswith(name) for name in known)
    return any(name.startswith(flag) for name in known)


def plain(word: str) -> str:
    """Return a word's flag alone: without its value, the key below it, and with dashes."""
    flag = re.split(r"[=.]", word, maxsplit=1)[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag
