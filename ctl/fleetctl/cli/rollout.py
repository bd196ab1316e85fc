"""`fleetctl rollout` and its commands."""

from __future__ import annotations

from fleetctl.cli.lazy import Effect, nested_group

_READS, _WRITES = Effect.READS, Effect.WRITES

_ROWS = (
    ("Look", "status", "Show how far a rollout is, lane by lane.", "rollout_commands:status", _READS),
    ("Look", "history", "Show a fleet's revisions, and what each changed.", "rollout_commands:history", _READS),
    ("Change", "pause", "Hold a rollout where it is.", "rollout_commands:pause", _WRITES),
    ("Change", "resume", "Let a rollout go on, or try a failed one again.", "rollout_commands:resume", _WRITES),
    ("Change", "undo", "Put an earlier revision in force again.", "rollout_commands:undo", _WRITES),
)

GROUP = nested_group(
    "rollout",
    "Look at how a changed profile reaches running replicas, hold it, or go back.",
    _ROWS,
)
