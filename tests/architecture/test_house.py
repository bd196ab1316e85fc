"""The rules of the house that no linter of the gate can say."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest

from tests.architecture.sources import facts_of, name_of, source_files, tracked

pytestmark = pytest.mark.xdist_group("sources")  # whose facts one process finds once

LINES_MAX = 400  # past this a file has become a second thing
# The files a request passes through (ARCHITECTURE.md, "A request"): they are read together, so each is to be short.
REQUEST_LINES_MAX = 250
REQUEST_FILES = re.compile(r"ctl/fleetctl/(gateway/|core/(dispatch/|admission/|routing/|lanes\.py|slo/accounts\.py))")
# STYLE: a module called after what it holds, not after what it is.
SHAPELESS = {"manager", "managers", "util", "utils", "data", "info", "handler", "process", "misc"}


def test_there_is_source_to_judge() -> None:
    assert len(source_files()) > 50


def test_every_source_file_says_what_it_is() -> None:
    silent = [name_of(path) for path in source_files() if not facts_of(path).docstring]
    assert silent == []


def test_no_file_has_become_two() -> None:
    sizes = {name_of(path): len(path.read_text().splitlines()) for path in tracked(".py")}
    assert {name: lines for name, lines in sizes.items() if lines > LINES_MAX and not name.startswith("tests/")} == {}
    assert median(lines for name, lines in sizes.items() if not name.startswith("tests/")) <= 200


def test_no_file_of_a_requests_journey_is_long() -> None:
    journey = [path for path in source_files() if REQUEST_FILES.match(name_of(path))]
    assert {path.stem for path in journey} >= {"relay", "dispatcher", "admit", "picker", "lanes", "accounts"}
    sizes = {name_of(path): len(path.read_text().splitlines()) for path in journey}
    assert {name: lines for name, lines in sizes.items() if lines > REQUEST_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{name_of(path)}:{line} {name}"
        for path in source_files()
        for line, name, length in facts_of(path).functions
        if length > 60
    ]
    assert long == []


def test_no_module_has_a_shapeless_name() -> None:
    assert [name_of(path) for path in source_files() if path.stem in SHAPELESS] == []


def test_every_suppression_names_its_rule_and_types_are_never_ignored_wholesale() -> None:
    bare = re.compile(r"#\s*(noqa(?!:)|type:\s*ignore(?!\[)|pragma: no cover)")
    found = [
        f"{name_of(path)}:{number}"
        for path in tracked(".py")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []


def test_no_test_is_switched_off_or_patches_the_world() -> None:
    switched = re.compile(r"pytest\.mark\.(skip|xfail)\b|pytest\.xfail\(|mock\.patch")
    found = [
        name_of(path)
        for path in tracked(".py")
        if name_of(path).startswith("tests/")
        and not name_of(path).startswith("tests/bench/")  # scripts that time real things
        and path != Path(__file__)
        and switched.search(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("pattern", [r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b", r"NotImplementedError\b"])
def test_nothing_is_left_for_later(pattern: str) -> None:
    found = [name_of(path) for path in source_files() if re.search(pattern, path.read_text())]
    assert found == []


def test_nobody_imports_a_test_from_the_product() -> None:
    found = [
        name_of(path)
        for path in source_files()
        if re.search(r"^\s*(from|import) tests\b", path.read_text(), re.MULTILINE)
    ]
    assert found == []
