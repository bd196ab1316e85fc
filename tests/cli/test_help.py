from __future__ import annotations

import subprocess
import sys

import pytest

from fleetctl.cli.catalogue import COMMANDS

HEAVY = (
    "aiohttp", "asyncio", "boto3", "fleetctl.model.status", "http.client", "httpx", "jinja2", "kubernetes", "msgspec",
    "prometheus_client", "psutil", "pydantic", "rich", "sqlite3", "textual", "uvloop", "yaml",
)  # fmt: skip


def loaded_by(*argv: str) -> set[str]:
    script = "import sys; from fleetctl.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", script, *argv], capture_output=True, text=True, check=True, timeout=30)
    return set(ran.stderr.split())


@pytest.mark.parametrize("argv", [("--help",), ("--version",)])
def test_the_command_line_loads_nothing_heavy(argv):
    assert loaded_by(*argv) & set(HEAVY) == set()


def test_a_read_loads_only_what_it_needs():
    # typer coerces options with pydantic, the store and the clock are needed, and where there is no fleet the processes of
    # one whose state is gone are looked for; the rest is other commands' affair.
    needed = {"asyncio", "fleetctl.model.status", "http.client", "msgspec", "psutil", "pydantic", "sqlite3"}
    assert loaded_by("ls") & set(HEAVY) <= needed


def test_help_lists_every_command_once(fleetctl):
    ran = fleetctl("--help")
    first_words = [line.split()[0] for line in ran.out.splitlines() if line.startswith("  ") and line.split()]
    assert ran.code == 0
    assert all(first_words.count(spec.name) == 1 for spec in COMMANDS)


def test_no_arguments_is_wrong_usage_and_prints_the_help(fleetctl):
    ran = fleetctl()
    assert ran.code == 2
    assert "Start here:" in ran.out + ran.err


@pytest.mark.parametrize("spec", COMMANDS, ids=lambda spec: spec.name)
def test_every_command_has_a_help_of_its_own(spec, fleetctl):
    ran = fleetctl(spec.name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: fleetctl {spec.name}")
    assert spec.load().__doc__.splitlines()[0].endswith((".", ":"))


def test_a_mistyped_command_is_answered_with_the_nearest(fleetctl):
    ran = fleetctl("statsu")
    assert ran.code == 2
    assert "Did you mean 'status', 'state', 'restart'?" in ran.err
