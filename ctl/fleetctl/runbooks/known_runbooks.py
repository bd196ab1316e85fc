"""The runbooks there are: a file, or one by its name in the user's own directory or among the packaged ones."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl import resources
from fleetctl.config.faults import PlacedFault, ProfileFault, place_faults
from fleetctl.config.runbook import RunbookReading, read_runbook_file, unreadable_runbook
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.runbook import Runbook
from fleetctl.runbooks.lint import expression_faults, profile_faults
from fleetctl.spelling import suggest

_FOLDER = "runbooks/"
_SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRunbook:
    """A runbook, and the file it was read from."""

    runbook: Runbook
    file: str


def runbook_names() -> tuple[str, ...]:
    """Return the names of the packaged runbooks, the user's own included."""
    found = resources.available("profiles")
    return tuple(
        name.removeprefix(_FOLDER).removesuffix(_SUFFIX)
        for name in found
        if name.startswith(_FOLDER) and name.endswith(_SUFFIX)
    )


def format_schema() -> dict[str, Any]:
    """Return the JSON Schema of the runbook (draft 2020-12)."""
    from fleetctl.config.runbook_schema import runbook_schema

    return runbook_schema()


def find_runbook(file_or_name: str) -> FoundRunbook:
    """Return the runbook in a file, or of a name. Raises ConfigError with every fault, NotFoundError."""
    reading = find_runbook_reading(file_or_name)
    faults = lint_faults(reading)
    if faults or reading.runbook is None:
        raise unreadable_runbook(reading.source, faults)
    return FoundRunbook(runbook=reading.runbook, file=str(Path(reading.source.name).absolute()))


def find_runbook_reading(file_or_name: str) -> RunbookReading:
    """Return what the runbook of this file or name says. Raises NotFoundError, ConfigError."""
    path = Path(file_or_name)
    if path.is_file() or path.is_fifo():
        return read_runbook_file(path)
    known = runbook_names()
    if file_or_name in known:
        return read_runbook_file(resources.find("profiles", f"{_FOLDER}{file_or_name}{_SUFFIX}"))
    if path.is_dir():
        raise ConfigError(f"{path} is a directory, not a runbook", hint="name the YAML file in it")
    if "/" in file_or_name or path.suffix in (_SUFFIX, ".yml"):
        raise NotFoundError(f"no runbook at {path}", hint="`fleetctl runbook list` names those there are")
    raise NotFoundError(
        f"no file and no runbook is called {file_or_name!r}{suggest(file_or_name, known)}",
        hint=f"there are: {', '.join(known) or 'none'}",
    )


def typed_name(runbook: Runbook, file: str) -> str:
    """Return what a command line names a runbook by: its name where that leads to the file it was read from, else the file."""
    name = runbook.name
    if name in runbook_names() and str(resources.find("profiles", f"{_FOLDER}{name}{_SUFFIX}").absolute()) == file:
        return name
    return shlex.quote(file) if file else name


def lint_faults(reading: RunbookReading) -> tuple[PlacedFault, ...]:
    """Return everything that is wrong with a runbook, its expressions included, in the order of its file."""
    if reading.runbook is None:
        return reading.faults
    faults: list[ProfileFault] = [
        *expression_faults(reading.runbook),
        *profile_faults(reading.runbook, directory=Path(reading.source.name).parent),
    ]
    return tuple(sorted({*reading.faults, *place_faults(faults, reading.source)}))


def lint_cautions(reading: RunbookReading) -> tuple[str, ...]:
    """Return what a runbook may mean, and most likely does not, in words."""
    runbook = reading.runbook
    if runbook is None or runbook.notify:
        return ()
    steps = (*runbook.steps, *runbook.on_failure)
    return tuple(
        f"{reading.source.name}: step {taken.name} tells nobody: the runbook has no receivers under `notify`"
        for taken in steps
        if taken.action == "notify"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryEntry:
    """A runbook that can be run by its name."""

    name: str
    file: str
    runbook: Runbook | None = None  # None: it has faults
    fault: str = ""  # the first of them

    @property
    def description(self) -> str:
        """What it does."""
        return self.runbook.description if self.runbook else ""


def list_library() -> tuple[LibraryEntry, ...]:
    """Return every runbook there is by name, those with faults too."""
    entries = []
    for name in runbook_names():
        reading = find_runbook_reading(name)
        faults = lint_faults(reading)
        entries.append(
            LibraryEntry(
                name=name,
                file=reading.source.name,
                runbook=None if faults else reading.runbook,
                fault=str(faults[0]) if faults else "",
            )
        )
    return tuple(entries)
