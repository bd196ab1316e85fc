"""`fleetctl state` and its commands."""

from __future__ import annotations

from fleetctl.cli.lazy import Effect, nested_group

_ROWS = (
    ("Look", "show", "Show where fleets are on record, and who holds them.", "state_commands:show", Effect.READS),
    ("Change", "unlock", "End the lease of a controller that is gone.", "state_commands:unlock", Effect.WRITES),
    (
        "Change",
        "migrate",
        "Move the state to S3, or back to this machine.",
        "state_commands:migrate",
        Effect.WRITES_FILES,
    ),
)

GROUP = nested_group("state", "Look at the state that fleets are on record in, and move it.", _ROWS)
