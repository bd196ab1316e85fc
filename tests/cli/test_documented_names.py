"""What documents and messages name exists: keys of the profile, commands and their options."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.lazy import LazyCommand, SectionedGroup
from fleetctl.cli.main import command
from fleetctl.config.profile_keys import schema_keys
from tests.architecture.sources import ROOT, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("sources")  # whose facts one process finds once

# Made from what they describe, or of what was: names of earlier versions are right in a record of measurements.
LEFT_OUT = {"json.md", "cli.md", "benchmarks.md", "CHANGELOG.md"}
FILES = (".py", ".log", ".lock", ".sock")  # of a process or a package: `gateway.sock`
# Whose dotted names are a runbook's variables, not keys.
OF_RUNBOOKS = {"runbooks.md", "runbook-keys.md"}
OF_SCORERS = "gateway.routing.scorers."  # what is behind it is the name of one, a package's perhaps
SECTIONS = ("capacity", "control", "gateway", "lanes", "tiers", "workflows", "workload", "slo", "emulator")
KEY = re.compile(rf"(?:{'|'.join(SECTIONS)})(?:\.[a-z0-9_*-]+)+")
COMMAND = re.compile(r"\bfleetctl ((?:[a-z-]+ ?)+)([^`\"'#;|]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def documents() -> Iterator[tuple[str, str]]:
    """Yield each line that people read in a document, and where it is."""
    for file in (*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("*.md"))):
        if file.name not in LEFT_OUT:
            for number, line in enumerate(file.read_text().splitlines(), start=1):
                yield f"{file.name}:{number}", line


def messages() -> Iterator[tuple[str, str]]:
    """Yield each piece of text in the sources, docstrings among them, and where it is."""
    for file in sorted([*ROOT.glob("ctl/**/*.py"), *ROOT.glob("providers/**/*.py")]):
        for line, text in facts_of(file).strings:
            if "." in text:
                yield f"{file.relative_to(ROOT)}:{line}", text


@cache
def keys() -> frozenset[tuple[str, ...]]:
    paths = [key.path for key in schema_keys()]
    return frozenset(path[:end] for path in paths for end in range(1, len(path) + 1))


def is_key(name: str) -> bool:
    parts = name.split(".")
    if name.startswith(OF_SCORERS):
        return True
    return any(
        len(path) == len(parts)
        and all("*" in (each, part) or each == part for each, part in zip(path, parts, strict=True))
        for path in keys()
    )


def test_every_key_that_a_document_names_is_one_that_profiles_have() -> None:
    unknown = [
        (where, found)
        for where, line in documents()
        if where.partition(":")[0] not in OF_RUNBOOKS
        for quoted in re.findall(r"`([^`]+)`", line)
        if (match := KEY.match(quoted)) and not (found := match[0]).endswith(FILES) and not is_key(found)
    ]
    assert unknown == [], unknown


def test_every_key_that_a_message_names_is_one_that_profiles_have() -> None:
    # The name of a section stands alone, or with what was given behind it; a sentence may end with it.
    named = re.compile(rf"(?:^|[ (`]){KEY.pattern}(?=$|[ ,;:)`])")
    unknown = [
        (where, found)
        for where, text in messages()
        for match in named.finditer(text)
        if not (found := match[0].strip(" (`")).endswith(FILES)
        and not is_key(found)
        and "runbook" not in where
        and not found.startswith("slo.")  # within a lane's section it is short for the lane's
    ]
    assert unknown == [], unknown


def commands(prefix: str, group: SectionedGroup) -> Iterator[tuple[str, set[str]]]:
    for each in group.commands.values():
        assert isinstance(each, LazyCommand)
        name = f"{prefix}{each.spec.name}"
        yield (
            name,
            {option for parameter in each.real.params for option in (*parameter.opts, *parameter.secondary_opts)},
        )
        if isinstance(each.real, SectionedGroup):
            yield from commands(f"{name} ", each.real)


def test_every_command_and_option_that_is_named_can_be_typed() -> None:
    known = dict(commands("", command()))
    unknown = []
    for where, text in (*documents(), *messages()):
        for match in COMMAND.finditer(text):
            words, options = match[1].split(), OPTION.findall(match[0])
            name = next((n for size in (3, 2, 1) if (n := " ".join(words[:size])) in known), None)
            if name is not None:
                unknown += [(where, name, option) for option in options if option not in known[name] | {"--help"}]
    assert unknown == [], unknown
