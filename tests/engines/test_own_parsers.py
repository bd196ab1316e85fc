"""What plans are held to where an engine is installed: its own parser described by its package's file, names included.

The kept lists of parsers, for machines without the engine, are the registries' own.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.engine_kit.flags import known_flags
from fleetctl.plugins import load_engine
from tests.engines.environment import CHECKOUT, engine_env, offline

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.engines, pytest.mark.timeout(400)]
DESCRIBE = CHECKOUT / "ctl" / "fleetctl" / "engine_kit" / "describe_parser.py"


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def described(request: pytest.FixtureRequest) -> tuple[str, list[dict[str, Any]]]:
    """An engine, and its options; of SGLang by the Python of its wheel alone."""
    name, wheel = request.param, engine_env() / "sglang"
    own = load_engine(name).capabilities.own_parser
    assert own is not None
    environment = {"PATH": os.environ["PATH"], "HOME": str(wheel), **offline()}
    scripts: list[Path] = [DESCRIBE, own]
    if name == "sglang":
        environment["PYTHONPATH"] = str(wheel)
        scripts.insert(0, CHECKOUT / "tests" / "engine_env" / "describe_sglang.py")
    done = subprocess.run(  # the checkout's own
        [str(engine_env() / "bin" / "python"), *map(str, scripts)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return name, json.loads(done.stdout.splitlines()[-1])


def test_every_name_of_a_parser_that_a_list_has_is_registered_and_none_is_left_out(
    described: tuple[str, list[dict[str, Any]]],
) -> None:
    engine, options = described
    for key, kept in load_engine(engine).capabilities.parser_names.items():
        flag = f"--{key.replace('_', '-')}"
        (option,) = (each for each in options if flag in each["flags"])
        assert option["choices"] is not None, f"{engine} does not say which {flag} there are"
        assert set(option["choices"]) == kept, flag


def test_the_described_flags_are_those_of_the_kept_list(
    described: tuple[str, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    engine, options = described
    assert known_flags(engine) == {flag for each in options for flag in each["flags"]}
