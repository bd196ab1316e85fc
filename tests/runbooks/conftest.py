from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.config.runbook import read_runbook
from fleetctl.runbooks.context import Company
from fleetctl.runbooks.known_runbooks import FoundRunbook, lint_faults
from fleetctl.runbooks.runner import RunRequest, RunResult, resume_run, run_runbook
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.runbook import Runbook
    from fleetctl.model.runbook_run import RunbookRun, StepRecord

HEAD = "apiVersion: fleetctl/v1\nkind: Runbook\nname: nightly\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directories of their own."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        directory = tmp_path / variable[4:8].lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(directory))
    return tmp_path


def runbook(text: str) -> Runbook:
    """Return the runbook with this body."""
    reading = read_runbook((HEAD + text).encode(), source="nightly.yaml")
    assert lint_faults(reading) == ()
    return reading.checked()


@dataclass(slots=True)
class Rig:
    """A fleet on a Site of fakes, and runs on it."""

    fakes: FakeSite = field(default_factory=FakeSite)
    steps: list[tuple[str, str]] = field(default_factory=list)  # name, status: as they are reported
    spoken: list[str] = field(default_factory=list)
    answer: bool | None = None  # of whoever is asked for an approval

    def __post_init__(self) -> None:
        self.fakes.store.put_fleet(samples.profile(), samples.plan(), now=self.fakes.clock.now())
        self.fakes.host.controllers["demo"] = lambda: self.fakes.ready_status("demo")
        self.fakes.host.gateways.add("demo")

    @property
    def company(self) -> Company:
        return Company(tell=self.spoken.append, approves=lambda _: self.answer, on_step=self._on_step)

    def run(self, text: str, **changes: object) -> RunResult:
        """Run the runbook with this body."""
        return run_runbook(self.fakes.site, self.request(text, **changes), self.company)

    def request(self, text: str, **changes: object) -> RunRequest:
        base = RunRequest(found=FoundRunbook(runbook=runbook(text), file=""), fleet="demo")
        return replace(base, **changes)  # type: ignore[arg-type]  # fields of it

    def resume(self, run_id: str) -> RunResult:
        return resume_run(self.fakes.site, run_id, self.company)

    def replicas(self, lane: str) -> int | None:
        """Return what the lane's override says."""
        desired = self.fakes.store.fleet("demo")
        assert desired is not None
        return desired.overrides.replicas.get(lane)

    def _on_step(self, run: RunbookRun, record: StepRecord) -> None:
        del run
        self.steps.append((record.name, record.status.value))


@pytest.fixture
def rig() -> Rig:
    return Rig()
