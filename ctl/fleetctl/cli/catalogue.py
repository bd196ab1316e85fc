"""Every command: its name, its heading, one line of help, where it lives, and whether it changes anything."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.cli.lazy import Effect, spec_of

_READS, _WRITES, _FILES = Effect.READS, Effect.WRITES, Effect.WRITES_FILES

_ROWS = (
    (
        "Start here",
        "demo",
        "Bring up the quickstart fleet under built-in traffic and look at it.",
        "demo:demo",
        _WRITES,
    ),
    ("Start here", "init", "Write a starter profile for a use case.", "profiles:init", _FILES),
    (
        "Start here",
        "validate",
        "Check a profile; errors name the file, the line and the key.",
        "profiles:validate",
        _READS,
    ),
    (
        "Start here",
        "model",
        "Add a model to your own catalogue, by its config.json.",
        "model:GROUP",
        _READS,
    ),
    (
        "Start here",
        "calibrate",
        "Refit the performance model to your own engine: its metrics, or a benchmark's file.",
        "calibrate:calibrate",
        _FILES,
    ),
    ("Start here", "plan", "Show what a profile needs: replicas, settings, cost, forecast.", "plan:plan", _FILES),
    ("Start here", "offers", "List what is sold: GPUs, prices, zones, stock.", "offers:offers", _READS),
    ("Start here", "simulate", "Compute what a profile's fleet would make of a trace.", "simulate:simulate", _READS),
    (
        "Start here",
        "backtest",
        "Replay a recorded period under other profiles and policies.",
        "backtest:backtest",
        _READS,
    ),
    ("Run a fleet", "up", "Bring a fleet up, or change a running one to match its profile.", "up:up", _WRITES),
    ("Run a fleet", "down", "Take a fleet down and leave nothing behind.", "down:down", _WRITES),
    (
        "Run a fleet",
        "rollout",
        "Look at a rollout, hold it, or go back to an earlier revision.",
        "rollout:GROUP",
        _READS,
    ),
    ("Run a fleet", "scale", "Set a lane's replicas by hand.", "overrides:scale", _WRITES),
    (
        "Run a fleet",
        "drain",
        "Take a replica, a node or a zone out of rotation, and replace it.",
        "drain:drain",
        _WRITES,
    ),
    (
        "Run a fleet",
        "restart",
        "Start a replica's engine anew on the node that it has.",
        "restart:restart",
        _WRITES,
    ),
    ("Run a fleet", "undrain", "Take a drain back, or a cordon.", "drain:undrain", _WRITES),
    ("Run a fleet", "shed", "Pin a lane on a step of the degradation ladder, or let it go.", "overrides:shed", _WRITES),
    (
        "Run a fleet",
        "freeze",
        "Hold a fleet or a lane still: no change of the controller's own choice.",
        "freezing:freeze",
        _WRITES,
    ),
    ("Run a fleet", "thaw", "End a freeze.", "freezing:thaw", _WRITES),
    (
        "Run a fleet",
        "interrupt",
        "Interrupt a spot node on purpose, with or without notice.",
        "interrupt:interrupt",
        _WRITES,
    ),
    ("Run a fleet", "runbook", "Run steps on a fleet, by hand, from cron or a timer.", "runbook:GROUP", _READS),
    ("Look at it", "top", "Watch a fleet live, in the terminal.", "top:top", _READS),
    ("Look at it", "ls", "List fleets.", "ls:ls", _READS),
    (
        "Look at it",
        "status",
        "Show a fleet: lanes, replicas, cost, and why they are as they are.",
        "status:status",
        _READS,
    ),
    ("Look at it", "lanes", "Show each lane's latency, traffic, refusals and burn rate.", "lanes:lanes", _READS),
    (
        "Look at it",
        "why",
        "Explain a lane, a replica, a workflow or a request: decisions, and where time went.",
        "why:why",
        _READS,
    ),
    ("Look at it", "shadow", "Compare the active policy with one that only watches.", "shadow:shadow", _READS),
    ("Look at it", "diagnose", "Say why users wait or fail: cause, evidence, remedy.", "diagnose:diagnose", _READS),
    (
        "Look at it",
        "requests",
        "List the last requests: waits, first tokens, replicas, verdicts.",
        "requests:requests",
        _READS,
    ),
    ("Look at it", "slo", "Show what was promised and kept: error budget, burn rates, worst hours.", "slo:slo", _READS),
    ("Look at it", "cost", "Show what fleets cost: now, this month, by lane and token.", "cost:cost", _READS),
    ("Look at it", "events", "Show what happened, oldest first; --follow goes on.", "events:events", _READS),
    (
        "Look at it",
        "interruptions",
        "Show which nodes were taken, and how often, by zone and type.",
        "interruptions:interruptions",
        _READS,
    ),
    ("Look at it", "audit", "Show who changed what, on all fleets, gone ones too.", "audit:audit", _READS),
    ("Look at it", "logs", "Show what an engine, the gateway or the controller has written.", "logs:logs", _READS),
    ("Look at it", "record", "Record a running fleet into a file, for backtest.", "record:record", _FILES),
    ("Look at it", "load", "Send a fleet open-loop traffic and report per lane.", "load:load", _WRITES),
    ("Tools", "render", "Write launch configurations for the engines of a profile.", "render:render", _FILES),
    ("Tools", "schema", "Print the JSON Schema of the profile or the runbook, for editors.", "profiles:schema", _READS),
    ("Tools", "gc", "List or remove what outlived its fleet at the providers.", "gc:gc", _WRITES),
    ("Tools", "state", "Look at the state that fleets are on record in, and move it.", "state:GROUP", _READS),
    ("Tools", "doctor", "Check this machine and say what to mend.", "doctor:doctor", _READS),
    ("Tools", "completion", "Print the completion script of a shell.", "completion:completion", _FILES),
    ("Tools", "version", "Print the version.", "version:version", _READS),
)

# Commands that only read unless one of these options is given.
_ONLY_WITH = {"gc": ("yes",), "plan": ("out",), "completion": ("install", "uninstall")}

COMMANDS = tuple(replace(spec_of(row), only_with=_ONLY_WITH.get(row[1], ())) for row in _ROWS)
