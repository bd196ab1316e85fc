"""What every engine package holds to, whoever wrote it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from acme_engine.engine import AcmeEngine

from fleetctl.model.slo import Validity
from fleetctl.plugins import EMULATED, ENGINES, installed, load_engine
from fleetctl.ports.engine import EngineCapabilities, visible_engine
from fleetctl.render.plan import render_plan
from fleetctl.testing import samples
from fleetctl.testing.engine import FakeEngine
from fleetctl_emulator.engine import EmulatedEngine
from fleetctl_llamacpp.engine import LlamaCppEngine
from fleetctl_sglang.engine import SglangEngine
from fleetctl_tgi.engine import TgiEngine
from fleetctl_vllm.engine import VllmEngine
from tests.render import fleets

if TYPE_CHECKING:
    from fleetctl.ports.engine import Engine

ROOT = Path(__file__).parents[2] / "ctl" / "engines"
ACME = Path(__file__).parent / "acme"
# That these are engines by the port, mypy proves.
ALL: tuple[Engine, ...] = (
    VllmEngine(), TgiEngine(), SglangEngine(), LlamaCppEngine(), EmulatedEngine(), AcmeEngine(),
)  # fmt: skip
FILES = {"__init__.py", "engine.py", "diagnosis.py", "launch.py", "signals.py", "capabilities.py"}

# A parser of its own that plans are held to, and the names of its parsers of tool calls and thoughts.
WHERE_THERE_IS_ONE = {"own_parser.py", "parsers.py"}

# What docs/extending.md says that an engine may import of fleetctl.
SEEN = (
    "catalogue", "clock", "codec", "core.perf", "engine_kit", "errors", "model", "plugins", "ports", "telemetry", "units",
)  # fmt: skip

each = pytest.mark.parametrize("engine", ALL, ids=lambda engine: engine.name)


def test_every_package_of_an_engine_has_the_same_files() -> None:
    for package in ROOT.glob("fleetctl_*"):
        there = {path.name for path in package.glob("*.py")}
        assert there >= FILES, package
        assert package.name == "fleetctl_emulator" or there - WHERE_THERE_IS_ONE == FILES | {"container.py"}, package


def test_engines_import_of_fleetctl_what_they_are_told_they_may() -> None:
    allowed = tuple(f"fleetctl.{name}" for name in SEEN)
    for path in [*ROOT.rglob("*.py"), *ACME.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str | None] = []
            if isinstance(node, ast.ImportFrom):
                names = (
                    [f"fleetctl.{alias.name}" for alias in node.names] if node.module == "fleetctl" else [node.module]
                )
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            strange = [name for name in names if name and name.split(".")[0] == "fleetctl"]
            assert [name for name in strange if not name.startswith(allowed)] == [], path


def test_built_in_engines_are_found_by_their_own_names() -> None:
    names = installed(ENGINES)
    assert set(names) >= {"emulator", "llamacpp", "sglang", "tgi", "vllm"}
    assert [load_engine(name).name for name in names] == list(names)


def test_every_engine_that_can_be_played_is_installed() -> None:
    assert set(installed(EMULATED)) <= set(installed(ENGINES))


@each
def test_an_engine_says_what_it_can_do_and_reads_no_page_that_is_not_its_own(engine: Engine) -> None:
    assert isinstance(engine.capabilities, EngineCapabilities)
    assert engine.health_path.startswith("/")
    assert engine.metrics_path.startswith("/")
    assert engine.signals("# TYPE strange gauge\nstrange 1\n").validity is Validity.INVALID


@each
def test_a_lane_looks_from_outside_like_an_engine_that_plays_nobody(engine: Engine) -> None:
    lane = samples.profile().lane("short")
    seen = visible_engine(lambda name: engine if name == lane.engine else load_engine(name), lane)
    assert seen.emulation(lane) is None
    assert (seen is engine) == (engine.name != "emulator")


def test_an_engine_without_an_image_gets_no_container_files() -> None:
    profile, plan = fleets.fleet((fleets.lane("short", "fake"), fleets.lane_plan("short", "fake")))
    files = render_plan(profile, plan, lambda _: FakeEngine())
    assert "short/launch.sh" in files
    assert [path for path in files if "compose" in path] == []
