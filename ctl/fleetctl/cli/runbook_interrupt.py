"""Ctrl-C and SIGTERM in the middle of a runbook's run: where it stands is said, and how to go on."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Self

from fleetctl import os_signals
from fleetctl.model.runbook_run import RunStatus, StepStatus
from fleetctl.printable import printable

if TYPE_CHECKING:
    from types import TracebackType

    from fleetctl.model.runbook_run import RunbookRun

EXIT_TERMINATED = 143  # 128 + SIGTERM, as shells say it


class Interruptible:
    """Keeps what a run's record says, and says it on stderr where the run is ended by Ctrl-C or SIGTERM."""

    def __init__(self) -> None:
        self._run: RunbookRun | None = None
        self._taking = os_signals.taking({signal.SIGTERM: SystemExit})

    def keep(self, run: RunbookRun) -> None:
        """Take how the run is on record now."""
        self._run = run

    def __enter__(self) -> Self:
        self._taking.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._taking.__exit__(kind, error, at)
        is_terminated = isinstance(error, SystemExit) and error.code == EXIT_TERMINATED
        if is_terminated or isinstance(error, KeyboardInterrupt):
            verb = "terminated" if is_terminated else "interrupted"
            sys.stderr.write(f"{printable(interrupt_text(self._run, verb=verb), keeps_lines=True)}\n")


def interrupt_text(run: RunbookRun | None, *, verb: str) -> str:
    """Return where a run stands that is ended from outside; None: none was begun."""
    if run is None:
        return f"{verb}; no run was begun"
    if run.status is not RunStatus.RUNNING:
        return f"{verb}; {run.id} {run.status}"
    under_way = next((each.name for each in run.steps if each.status is StepStatus.STARTED), "")
    done = [each.name for each in run.steps if each.is_over]
    at = f" at step {under_way}" if under_way else ""
    kept = f"what was done stays as it is ({', '.join(done)})" if done else "no step is done yet"
    return f"{verb}: {run.id}{at}; {kept}, nothing is rolled back\ngo on with it: fleetctl runbook resume {run.id}"
