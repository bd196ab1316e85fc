"""The runs on record: written before and after each step, found again by whoever comes next."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError, DamagedStateError, NotFoundError
from fleetctl.model.runbook_run import RunbookRun, RunStatus
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fleetctl.model.runbook import Json
    from fleetctl.ports.store import StateStore

_log = logging.getLogger("fleetctl.runbooks")
_RUNS = Collection.RUNBOOK_RUNS


def put_run(store: StateStore, run: RunbookRun) -> RunbookRun:
    """Store a run as it is now, on the disk when this returns. Raises StateError."""
    store.put_record(StoredRecord.of(_RUNS, run.id, run, at=run.created_at, fleet=run.fleet))
    return run


def runs_of(store: StateStore, fleet: str | None = None, *, limit: int = 2000) -> tuple[RunbookRun, ...]:
    """Return the newest runs on a fleet, or on all, oldest first; those that another version wrote otherwise are left out."""
    found = (_read(record) for record in store.records(_RUNS, fleet=fleet, limit=limit))
    return tuple(run for run in found if run is not None)


def find_run(store: StateStore, run_id: str, *, fleet: str = "") -> RunbookRun:
    """Return a run by its id. Raises NotFoundError, ConfigError where two fleets have one of that id."""
    everything = runs_of(store, fleet or None)
    found = [run for run in everything if run.id == run_id]
    if len(found) > 1:
        raise ConfigError(f"{run_id!r} is a run on {', '.join(run.fleet for run in found)}", hint="name one: --fleet")
    if not found:
        near = suggest(run_id, [run.id for run in everything])
        raise NotFoundError(f"there is no run {run_id!r}{near}", hint="`fleetctl runbook history` lists them")
    return found[0]


def _read(record: StoredRecord) -> RunbookRun | None:
    # One that cannot be read must not keep tonight's run from being made.
    try:
        return record.value_as(RunbookRun)
    except DamagedStateError as error:
        _log.info("left out: %s", error.message)  # on a terminal nobody asked; cron would mail it each time
        return None


def run_of_period(
    store: StateStore, fleet: str, runbook: str, parameters: Mapping[str, Json], stands_for: datetime
) -> RunbookRun | None:
    """Return the newest run of a runbook, with these parameters, for one period; None: there is none."""
    found = [
        run
        for run in runs_of(store, fleet)
        if run.runbook.name == runbook and run.stands_for == stands_for and dict(run.parameters) == dict(parameters)
    ]
    return found[-1] if found else None


def cut_runs(store: StateStore, fleet: str) -> tuple[RunbookRun, ...]:
    """Return the runs on a fleet that had not ended when their process did; asked by whoever holds the fleet's lock."""
    return tuple(run for run in runs_of(store, fleet) if run.status is RunStatus.RUNNING)


def new_run_id(store: StateStore, runbook: str, *, now: datetime) -> str:
    """Return an id that no run has: the runbook and the second, and a number where that is taken."""
    taken = {run.id for run in runs_of(store)}
    plain = f"{runbook}-{now:%Y%m%d-%H%M%S}"
    return next(name for n in range(1, len(taken) + 2) if (name := plain if n == 1 else f"{plain}-{n}") not in taken)
