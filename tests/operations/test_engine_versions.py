"""An engine's version is asked of the program that is on this machine, before anything changes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.engine_versions import is_version
from fleetctl.model.preflight import Verdict
from fleetctl.operations.engine_versions import engine_errors, flags_findings, program_findings
from fleetctl.plugins import load_engine
from fleetctl.ports.provider import ProviderCapabilities
from fleetctl.testing import samples

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site
    from tests.sites import FakeSite


@pytest.fixture
def here(fakes: FakeSite) -> Site:
    """A site whose provider starts processes on this machine."""
    fakes.provider.capabilities = ProviderCapabilities(runs_here=True)
    return replace(fakes.site, engines=load_engine)


def asking_for(engine: str, *, version: str = "", executable: str = "") -> Profile:
    profile = samples.profile()
    lane = replace(profile.lanes[0], engine=engine, engine_version=version, engine_executable=executable)
    return replace(profile, lanes=(lane,))


def program(directory: Path, text: str, name: str = "engine") -> str:
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def faults(site: Site, profile: Profile) -> list[str]:
    return [error.message for error in engine_errors(site, profile)]


def test_a_program_is_asked_for_its_version(here: Site, tmp_path: Path) -> None:
    launcher = program(tmp_path, "#!/bin/sh\necho text-generation-launcher 3.3.7\n")
    assert faults(here, asking_for("tgi", version="3.3.7", executable=launcher)) == []
    (error,) = engine_errors(here, asking_for("tgi", version="3.3.8", executable=launcher))
    assert error.message == f"lane short: the profile asks for tgi 3.3.8, and {launcher} is 3.3.7"
    assert error.key == ("lanes", "short", "engine")
    assert "executable: PATH" in error.hint


def test_a_python_program_is_asked_by_its_distributions_metadata_and_never_imported(here: Site, tmp_path: Path) -> None:
    server = program(tmp_path, f"#!{sys.executable}\nraise SystemExit('it takes a minute')\n")
    (found,) = faults(here, asking_for("vllm", version="0.32.0", executable=server))
    assert found.startswith(f"lane short: {server} does not say which version it is: ")
    assert "vllm" in found


@pytest.mark.parametrize(
    ("text", "why"), [("#!/bin/sh\nexit 3\n", "exit status 3"), ("#!/bin/sh\necho none\n", "none")]
)
def test_a_program_that_does_not_say_its_version_is_refused(here: Site, tmp_path: Path, text: str, why: str) -> None:
    launcher = program(tmp_path, text)
    (found,) = faults(here, asking_for("tgi", version="3.3.7", executable=launcher))
    assert found == f"lane short: {launcher} does not say which version it is: {why}"


def test_a_program_that_is_not_there_is_refused_whatever_the_version(here: Site) -> None:
    (found,) = faults(here, asking_for("vllm", executable="/nowhere/vllm"))
    assert found == "lane short: /nowhere/vllm is no program that can be run here"


def test_where_nodes_are_elsewhere_nothing_of_this_machine_is_asked(fakes: FakeSite) -> None:
    site = replace(fakes.site, engines=load_engine)
    assert faults(site, asking_for("vllm", version="0.32.0", executable="/opt/vllm/bin/vllm")) == []


def test_an_engine_that_comes_with_its_package_takes_a_version_and_no_program(here: Site) -> None:
    assert faults(here, asking_for("emulator", version="0.32.0")) == []
    (found,) = faults(here, asking_for("emulator", executable="/bin/true"))
    assert "takes no executable" in found


@pytest.mark.parametrize(
    ("reported", "wanted", "fits"),
    [
        ("0.32.0", "0.32.0", True),
        ("v0.32.0", "0.32.0", True),
        ("0.32.0+cu129", "0.32.0", True),
        ("0.32.0+cu129", "0.32.0+cpu", False),
        ("0.32.0", "0.32.0+cpu", False),
        ("0.32.1", "0.32.0", False),
        ("0.32.0.dev5", "0.32.0", False),
        ("", "0.32.0", False),
    ],
)
def test_a_build_of_the_version_is_the_version(reported: str, wanted: str, fits: bool) -> None:
    assert is_version(reported, wanted) is fits


def test_a_program_that_is_not_there_is_found_before_anything_starts(here: Site, tmp_path: Path) -> None:
    (found,) = program_findings(here, asking_for("vllm", executable=str(tmp_path / "vllm")))
    assert (found.name, found.verdict) == ("vllm", Verdict.FAIL)
    assert found.detail == f"{tmp_path / 'vllm'} is no program that can be run here"
    assert "FLEETCTL_VLLM=PATH" in found.hint
    assert not list(program_findings(here, asking_for("vllm", executable=program(tmp_path, "#!/bin/sh\n"))))
    assert not list(program_findings(here, asking_for("emulator")))


def test_a_python_counts_only_with_the_engine_in_it(here: Site) -> None:
    (found,) = program_findings(here, asking_for("sglang", executable=sys.executable))
    assert found.detail == f"sglang is not installed in {sys.executable}"


def test_nothing_of_this_machine_is_looked_at_for_nodes_elsewhere(fakes: FakeSite, tmp_path: Path) -> None:
    site = replace(fakes.site, engines=load_engine)
    assert not list(program_findings(site, asking_for("vllm", executable=str(tmp_path / "vllm"))))


@pytest.mark.parametrize(("version", "is_warned"), [("0.28.1", True), ("0.32.0+cpu", False), ("0.32.4", False)])
def test_an_engine_of_another_release_than_the_kept_flags_is_named(
    here: Site, tmp_path: Path, version: str, *, is_warned: bool
) -> None:
    python = program(tmp_path, f"#!/bin/sh\necho {version}\n", name="python9")
    server = program(tmp_path, f"#!{python}\n")
    found = list(flags_findings(here, asking_for("vllm", executable=server)))
    assert [each.verdict for each in found] == ([Verdict.WARN] if is_warned else [])
    assert all(
        f"{server} is {version}, and commands and extra_args are checked against the flags of 0.32.0" in each.detail
        for each in found
    )
