"""Every command: its name, its heading, one line of help, and where it lives."""

from __future__ import annotations

from fleetctl.cli.lazy import CommandSpec

_ROWS = (
    ("Start here", "demo", "Bring up the quickstart fleet under built-in traffic and look at it.", "demo:demo"),
    ("Start here", "init", "Write a starter profile for a use case.", "profiles:init"),
    ("Start here", "validate", "Check a profile; errors name the file, the line and the key.", "profiles:validate"),
    ("Start here", "plan", "Show what a profile needs: replicas, settings, cost, forecast.", "plan:plan"),
    ("Start here", "simulate", "Compute what a profile's fleet would make of a trace.", "simulate:simulate"),
    ("Run a fleet", "up", "Bring a fleet up, or change a running one to match its profile.", "up:up"),
    ("Run a fleet", "down", "Take a fleet down and leave nothing behind.", "down:down"),
    ("Run a fleet", "scale", "Set a lane's replicas by hand.", "overrides:scale"),
    ("Run a fleet", "drain", "Take a replica out of rotation, let it finish, and replace it.", "drain:drain"),
    ("Run a fleet", "shed", "Pin a lane on a step of the degradation ladder, or let it go.", "overrides:shed"),
    ("Run a fleet", "interrupt", "Interrupt a spot node on purpose, with or without notice.", "drain:interrupt"),
    ("Look at it", "top", "Watch a fleet live, in the terminal.", "top:top"),
    ("Look at it", "ls", "List fleets.", "ls:ls"),
    ("Look at it", "status", "Show a fleet: lanes, replicas, cost, and why they are as they are.", "status:status"),
    ("Look at it", "lanes", "Show each lane's latency, traffic, refusals and burn rate.", "lanes:lanes"),
    ("Look at it", "why", "Explain the latest decisions on a lane or a replica.", "why:why"),
    ("Look at it", "events", "Show what happened, oldest first; --follow goes on.", "events:events"),
    ("Look at it", "logs", "Show what an engine, the gateway or the controller has written.", "logs:logs"),
    ("Look at it", "load", "Send a fleet open-loop traffic and report per lane.", "load:load"),
    ("Tools", "render", "Write launch configurations for the engines of a profile.", "render:render"),
    ("Tools", "schema", "Print the JSON Schema of the profile, for editors.", "profiles:schema"),
    ("Tools", "gc", "List or remove what outlived its fleet at the providers.", "gc:gc"),
    ("Tools", "doctor", "Check this machine and say what to mend.", "doctor:doctor"),
    ("Tools", "completion", "Print the completion script of a shell.", "completion:completion"),
    ("Tools", "version", "Print the version.", "version:version"),
)

COMMANDS = tuple(
    CommandSpec(section=section, name=name, summary=summary, target=f"fleetctl.cli.{target}")
    for section, name, summary, target in _ROWS
)
