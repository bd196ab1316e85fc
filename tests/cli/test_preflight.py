"""How `plan`, `up` and `doctor` show what a provider finds beforehand."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.plugins import load_engine, load_provider
from fleetctl.ports.provider import ProviderCapabilities
from tests.sites import FakeSite

if TYPE_CHECKING:
    from fleetctl.operations.site import Site

pytestmark = pytest.mark.slow  # each plans a whole fleet

FAILURE = Finding(name="open files", verdict=Verdict.FAIL, detail="64 at most", hint="raise it")
WARNING = Finding(name="disk", verdict=Verdict.WARN, detail="300 MiB left", hint="free some")
FINE = Finding(name="memory", verdict=Verdict.OK, detail="64 GiB left")


@dataclass
class Looking:
    """The local provider with a preflight that finds what it is given."""

    found: tuple[Finding, ...]

    def site(self, fakes: FakeSite) -> Site:
        provider = load_provider("local")
        fakes.provider.found = self.found
        provider.capabilities = ProviderCapabilities(preflight=fakes.provider)  # type: ignore[misc]
        return replace(fakes.site, providers=lambda _: provider, engines=load_engine)


def run(capsys: pytest.CaptureFixture[str], found: tuple[Finding, ...], *argv: str) -> tuple[int, str, str, FakeSite]:
    fakes = FakeSite()
    code = main(argv, site=Looking(found).site(fakes))
    captured = capsys.readouterr()
    return code, captured.out, captured.err, fakes


def test_up_over_a_failure_starts_nothing_and_says_what_to_do(capsys):
    code, out, err, fakes = run(capsys, (FINE, FAILURE), "up", "quickstart", "--yes")
    assert (code, out) == (10, "")
    assert "error: provider local would fail: open files: 64 at most" in err
    assert "hint: raise it" in err
    assert fakes.store.fleets() == ()


def test_up_goes_on_over_a_warning_and_says_it(capsys):
    code, _, err, fakes = run(capsys, (FINE, WARNING), "up", "quickstart", "--yes", "--detach", "--quiet")
    assert code == 0
    assert err == "caution: disk: 300 MiB left; free some\n"
    assert [desired.fleet for desired in fakes.store.fleets()] == ["quickstart"]


def test_plan_shows_what_is_wanting_and_changes_nothing(capsys):
    code, out, _, fakes = run(capsys, (FINE, WARNING, FAILURE), "plan", "quickstart")
    assert code == 0
    assert "Preflight of provider local" in out
    assert "64 at most" in out
    assert "300 MiB left" in out
    assert "64 GiB left" not in out
    assert fakes.store.fleets() == ()


def test_plan_gives_programs_every_finding(capsys):
    _, out, _, _ = run(capsys, (FINE, FAILURE), "plan", "quickstart", "-o", "json")
    assert [each["verdict"] for each in json.loads(out)["preflight"]] == ["ok", "fail"]


def test_doctor_shows_all_of_them_and_exits_1_over_a_failure(capsys):
    code, out, _, _ = run(capsys, (FINE, FAILURE), "doctor")
    assert code == 1
    assert "local: memory" in out
    assert "local: open files" in out
