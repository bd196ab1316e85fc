"""`fleetctl runbook` and its commands."""

from __future__ import annotations

from fleetctl.cli.lazy import Effect, nested_group

_READS, _WRITES = Effect.READS, Effect.WRITES

_ROWS = (
    ("Run", "run", "Run a runbook on a fleet, or finish its run of this period.", "runbook_run:run", _WRITES),
    ("Run", "resume", "Go on with a run that was cut, or waits for an approval.", "runbook_run:resume", _WRITES),
    (
        "Run",
        "install-cron",
        "Have cron or systemd run a runbook by its schedule.",
        "runbook_install:install_cron",
        _WRITES,
    ),
    (
        "Look",
        "list",
        "List the runbooks there are: your own and the packaged ones.",
        "runbook_look:list_runbooks",
        _READS,
    ),
    ("Look", "show", "Show what a runbook does, its parameters and its next run.", "runbook_look:show", _READS),
    ("Look", "lint", "Check a runbook; errors name the file, the line and the key.", "runbook_look:lint", _READS),
    ("Look", "history", "Show the runs on a fleet: steps, durations, who.", "runbook_look:history", _READS),
)

GROUP = nested_group(
    "runbook",
    "Run steps on a fleet that are written down: by hand, from cron or a timer; recorded, resumed where they were cut.",
    _ROWS,
)
