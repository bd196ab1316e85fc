"""Tones as styles of the theme: the only place where a tone becomes a colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from fleetctl.printable import printable
from fleetctl.views.table import Span, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.widget import Widget

TONE_CLASSES = {f"tone--{tone.value}" for tone in Tone}

TONE_CSS = """
.tone--plain { color: $foreground; }
.tone--faint { color: $foreground 32%; }
.tone--dim { color: $text-muted; }
.tone--strong { color: $foreground; text-style: bold; }
.tone--good { color: $text-success; }
.tone--warn { color: $text-warning; }
.tone--bad { color: $text-error; text-style: bold; }
"""


def tone_styles(widget: Widget) -> dict[Tone, Style]:
    """Return each tone's foreground in the widget's theme; the background stays the widget's own."""
    found = {tone: widget.get_component_rich_style(f"tone--{tone.value}") for tone in Tone}
    return {tone: Style(color=style.color, bold=style.bold) for tone, style in found.items()}


def to_text(spans: Iterable[Span], styles: dict[Tone, Style]) -> Text:
    """Return spans as styled text that never wraps."""
    return Text.assemble(*((printable(text), styles[tone]) for text, tone in spans), no_wrap=True, overflow="ellipsis")
