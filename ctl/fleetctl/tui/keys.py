"""The keys, once: bound by the app, shown in its footer, listed by its help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding

from fleetctl.views.table import Span, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable

OPENED = frozenset({"trend", "tiers", "workflows"})  # panels that have room by themselves on large screens alone
# Binding ids of what changes a fleet; --readonly takes them away.
WRITING = frozenset({"mark", "drain", "scale", "shed"})

BINDINGS = [
    Binding("question_mark", "help", "Help", id="help", key_display="?"),
    Binding("slash", "filter", "Filter", id="filter", key_display="/"),
    Binding("space", "mark", "Mark", id="mark"),
    Binding("d", "drain", "Drain", id="drain"),
    Binding("s", "scale", "Scale", id="scale"),
    Binding("x", "shed", "Shed", id="shed"),
    Binding("e,enter", "explain", "Explain", id="explain", key_display="e"),
    Binding("p", "pause", "Pause", id="pause"),
    Binding("q,ctrl+c", "quit", "Quit", id="quit", key_display="q"),
    Binding("1", "panel('lanes')", "Go to Lanes", show=False, id="panel.lanes"),
    Binding("2", "panel('replicas')", "Go to Replicas", show=False, id="panel.replicas"),
    Binding("3", "panel('trend')", "Go to Trend", show=False, id="panel.trend"),
    Binding("4", "panel('decisions')", "Go to Decisions", show=False, id="panel.decisions"),
    Binding("5", "panel('tiers')", "Go to Tiers", show=False, id="panel.tiers"),
    Binding("6", "panel('workflows')", "Go to Workflows", show=False, id="panel.workflows"),
    Binding("escape", "clear", "Clear filter and marks", show=False, id="clear", key_display="esc"),
]

_HINTS = {
    "filter": "the focused panel; !word hides instead of keeps",
    "mark": "a replica, for drain",
    "drain": "the marked replicas, else the cursor's",
    "scale": "the cursor's lane",
    "shed": "pin the cursor's lane on a ladder step",
    "explain": "why the cursor's row is as it is",
    "pause": "freeze the screen; the fleet goes on",
    "quit": "the fleet stays up",
}


def help_lines(bindings: Iterable[Binding], *, is_readonly: bool) -> tuple[tuple[Span, ...], ...]:
    """Return one line per binding that works now."""
    shown = [b for b in bindings if not (is_readonly and b.id in WRITING)]
    keys = [b.key_display or " ".join(b.key.split(",")) for b in shown]
    wide = max(len(key) for key in keys)
    lines: list[tuple[Span, ...]] = [
        (
            (key.ljust(wide + 2), Tone.STRONG),
            (b.description.ljust(9), Tone.PLAIN),
            (_HINTS.get(b.id or "", ""), Tone.DIM),
        )
        for key, b in zip(keys, shown, strict=True)
    ]
    colours: tuple[tuple[Span, ...], ...] = (
        (("", Tone.PLAIN),),
        (("grey", Tone.DIM), (" figures rest on too few samples, or none", Tone.PLAIN)),
        (("yellow", Tone.WARN), (" near a limit, or on its way", Tone.PLAIN)),
        (("red", Tone.BAD), (" over a limit, failed, or stale", Tone.PLAIN)),
    )
    return (*lines, *colours)
