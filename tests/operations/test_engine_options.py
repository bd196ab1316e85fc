"""Where an engine is installed, plans are held to what its own parser takes, which is read once for each version."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fleetctl.engine_kit
from fleetctl.engine_kit.options import EngineOptions
from fleetctl.model.preflight import Verdict
from fleetctl.operations.engine_options import consulted, installed_options, options_findings
from fleetctl.operations.planning import try_planning
from fleetctl.operations.profiles import find_profile
from fleetctl.plugins import load_engine, load_provider
from fleetctl.ports.provider import ProviderCapabilities
from fleetctl.testing import samples
from tests.engines.environment import engine_env
from tests.sites import plugins_site

if TYPE_CHECKING:
    from fleetctl.errors import FleetctlError
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site
    from tests.sites import FakeSite

DESCRIBE = Path(next(iter(fleetctl.engine_kit.__path__))) / "describe_parser.py"
OWN = """
import argparse

def own_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--block-size", "-b", type=int)
    parser.add_argument("--share", type=float)
    parser.add_argument("--shape", type=__import__("json").loads)
    parser.add_argument("--policy", choices=("fcfs", "priority"))
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--tool-parser-plugin")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--eager-too", action=argparse.BooleanOptionalAction)
    parser.add_argument("--names", nargs="+")
    return parser, {"--tool-call-parser": ["hermes", "mistral"]}
"""
ANSWER = json.dumps(
    [
        {"flags": ["--seed"], "values": "1", "choices": None, "takes": ["1"]},
        {"flags": ["--mode"], "values": "1", "choices": ["calm", "quick"], "takes": ["x"]},
    ]
)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> EngineOptions:
    """The options of a small parser, read as an engine's are: in a process of its own."""
    script = tmp_path_factory.mktemp("own") / "own_parser.py"
    script.write_text(OWN)
    done = subprocess.run(  # this checkout's own
        [sys.executable, DESCRIBE, script], capture_output=True, text=True, timeout=60, check=True
    )
    return EngineOptions.read(done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ("--block-size", "16"), ("--block_size=16",), ("-b", "16"), ("-b16",), ("--share", "-.5"), ("--shape", '{"a": 1}'), ("--shape.a", "1"),
        ("--policy", "fcfs"), ("--pol=priority",), ("--eager",), ("--no-eager-too", "--eager-too"), ("--names", "a", "b", "--eager"),
        ("--tool-call-parser", "hermes"), ("--tool-call-parser", "mine", "--tool-parser-plugin", "mine.py"), ("serve", "a/model"),
    ],
)  # fmt: skip
def test_what_a_parser_takes_is_taken(options: EngineOptions, words: tuple[str, ...]) -> None:
    assert list(options.faults(words)) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--block-size", "seven"), "takes no --block-size seven: it has to be a whole number"),
        (("--share=half",), "takes no --share half: it has to be a number"),
        (("--policy", "lifo"), "takes no --policy lifo: it knows fcfs, priority"),
        (("--tool-call-parser", "hermess"), "takes no --tool-call-parser hermess: it knows hermes, mistral (did you mean 'hermes'?)"),
        (("--polcy", "fcfs"), "has no flag --polcy (did you mean '--policy'?)"),
        (("--block-size", "--eager"), "needs a value behind --block-size"),
        (("-z",), "has no flag -z"),
    ],
)  # fmt: skip
def test_what_a_parser_refuses_is_named_with_what_it_takes(
    options: EngineOptions, words: tuple[str, ...], why: str
) -> None:
    (fault,) = options.faults(("--share", "1", *words))
    assert (fault.index, fault.why) == (2, why)


@pytest.fixture
def here(fakes: FakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose provider starts processes on this machine, and whose notes are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fakes.provider.capabilities = ProviderCapabilities(runs_here=True)
    return replace(fakes.site, engines=load_engine)


def vllm(directory: Path, *, version: str = "0.32.0", answer: str = ANSWER, code: int = 0) -> str:
    """Return a program that is run with a Python which counts how often it is to describe its parser."""
    python = directory / "python9"
    python.write_text(
        f"#!/bin/sh\nif [ $1 = -I ]; then echo {version}; exit 0; fi\necho run >> {directory}/runs\n"
        f"cat {directory}/answer\necho broken >&2\nexit {code}\n"
    )
    (directory / "answer").write_text(answer)
    server = directory / "vllm"
    server.write_text(f"#!{python}\n")
    for path in (python, server):
        path.chmod(0o755)
    return str(server)


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text().splitlines())


def served_by(executable: str, *words: str) -> Profile:
    profile = samples.profile()
    base = profile.lanes[0]
    launch = replace(base.launch, extra_args=words)
    lane = replace(base, engine="vllm", engine_executable=executable, launch=launch)
    return replace(profile, lanes=(lane,))


def test_a_parser_is_run_once_for_each_version(here: Site, tmp_path: Path) -> None:
    notes: list[str] = []
    site = replace(here, tell=notes.append)
    for _ in range(3):
        assert consulted(site, served_by(vllm(tmp_path))) == {("vllm", str(tmp_path / "vllm"))}
    profile = served_by(vllm(tmp_path))
    before = runs(tmp_path)
    for _ in range(3):
        assert installed_options(site, profile)
    assert runs(tmp_path) - before <= 1
    seen = runs(tmp_path)
    (tmp_path / "python9").write_text((tmp_path / "python9").read_text().replace("0.32.0", "0.33.0"))
    assert next(iter(installed_options(site, profile).values())).version == "0.33.0"
    assert runs(tmp_path) == seen + 1 == len(notes)
    assert f"reading the options of {tmp_path / 'vllm'} 0.33.0" in notes[-1]
    assert not list(options_findings(site, profile))


@pytest.mark.parametrize(
    ("answer", "code", "why"), [("", 3, "broken"), ("[]", 0, "without an option"), ("{", 0, "no options")]
)
def test_a_parser_that_cannot_be_run_is_no_fault_of_the_plan(
    here: Site, tmp_path: Path, answer: str, code: int, why: str
) -> None:
    profile = served_by(vllm(tmp_path, answer=answer, code=code))
    (found,) = options_findings(here, profile)
    assert (found.name, found.verdict) == ("vllm", Verdict.WARN)
    assert why in found.detail
    assert "checked by the kept list of vllm 0.32.0" in found.detail
    assert not consulted(here, profile)
    assert runs(tmp_path) == 1  # a failure is kept too, for a while


def test_nothing_is_read_of_an_engine_that_is_not_here_or_runs_elsewhere(
    here: Site, fakes: FakeSite, tmp_path: Path
) -> None:
    assert not installed_options(here, served_by(str(tmp_path / "nothing")))
    fakes.provider.capabilities = ProviderCapabilities(runs_here=False)
    assert not installed_options(here, served_by(vllm(tmp_path)))
    assert not (tmp_path / "runs").exists()


def test_an_engine_with_a_cache_that_cannot_be_written_is_consulted_all_the_same(
    here: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert consulted(here, served_by(vllm(tmp_path)))


@pytest.mark.engines
@pytest.mark.timeout(300)
def test_a_plan_is_held_to_a_real_vllms_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    executable = str(engine_env() / "bin" / "vllm")
    assert os.access(executable, os.X_OK)
    site = replace(plugins_site(), providers=load_provider)
    packaged = find_profile("chat")
    lanes = tuple(replace(lane, engine="vllm", engine_executable=executable) for lane in packaged.lanes)

    def errors(**changes: object) -> tuple[FleetctlError, ...]:
        first = replace(lanes[0], launch=replace(lanes[0].launch, **changes))  # type: ignore[arg-type]  # as the test says
        return asyncio.run(try_planning(site, replace(packaged, lanes=(first, *lanes[1:])))).errors

    refused = errors(extra_args=("--load-format", "safetensors", "--block-size", "seven", "--frobnicate"))
    key = ("lanes", lanes[0].name, "launch")
    assert [error.key for error in refused] == [(*key, "extra_args", 2), (*key, "extra_args", 4)]
    (error,) = errors(tool_call_parser="hermess")
    assert error.key == (*key, "tool_call_parser")
    assert "did you mean 'hermes'?" in error.message
    assert not errors(extra_args=("--block-size", "16"))
