"""What opens above the screen: a question, a number, a choice, something to read. Esc always closes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from fleetctl.model.ladder import LadderStep
from fleetctl.printable import printable
from fleetctl.tui.tones import TONE_CLASSES, TONE_CSS, to_text, tone_styles

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from fleetctl.views.table import Span

AUTOMATIC = "auto"


class ConfirmDialog(ModalScreen[bool]):
    """Asks yes or no, after saying what will happen. The answer is no unless it is y."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes"),
        Binding("n,escape,q", "answer(False)", "No", id="confirm.no"),
    ]

    def __init__(self, question: str, consequences: tuple[str, ...]) -> None:
        super().__init__(classes="modal")
        self._question = question
        self._consequences = consequences

    def compose(self) -> ComposeResult:
        """Show the question, its consequences, and the two keys."""
        with Vertical(classes="box") as box:
            box.border_title = self._question
            yield Static(Text("\n".join(map(printable, self._consequences))))
            yield Static(Text.assemble(("y", "bold"), " yes   ", ("n", "bold"), " no"), classes="keys")

    def action_answer(self, answer: bool) -> None:  # Textual passes binding arguments by position
        """Close with the answer."""
        self.dismiss(answer)


class ReplicasDialog(ModalScreen[str | None]):
    """Asks for a number of replicas, or `auto`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel", id="replicas.cancel")]

    def __init__(self, lane: str, wanted: int) -> None:
        super().__init__(classes="modal")
        self._lane = lane
        self._wanted = wanted

    def compose(self) -> ComposeResult:
        """Show what is wanted now and a line to write in."""
        with Vertical(classes="box") as box:
            box.border_title = f"Scale {self._lane}"
            yield Static(Text(f"Replicas wanted now: {self._wanted}. A number, or {AUTOMATIC} for the controller's."))
            yield Input(value=str(self._wanted), restrict=r"[0-9auto]*", max_length=4, compact=True)
            yield Static(Text.assemble(("enter", "bold"), " go on   ", ("esc", "bold"), " cancel"), classes="keys")

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        if event.value == AUTOMATIC or event.value.isdecimal():
            self.dismiss(event.value)


class StepDialog(ModalScreen[str | None]):
    """Asks for a step of the degradation ladder, or `auto`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel", id="step.cancel")]

    def __init__(self, lane: str, step: LadderStep) -> None:
        super().__init__(classes="modal")
        self._lane = lane
        self._step = step

    def compose(self) -> ComposeResult:
        """Show the ladder, the present step picked."""
        with Vertical(classes="box") as box:
            box.border_title = f"Pin {self._lane} on a ladder step"
            options = [Option(f"{AUTOMATIC:<12} the controller chooses", id=AUTOMATIC)]
            options += [Option(f"{step.value:<12} {step.entry.meaning}", id=step.value) for step in LadderStep]
            choice = OptionList(*options, compact=True)
            choice.highlighted = 1 + self._step.level
            yield choice
            yield Static(Text.assemble(("enter", "bold"), " go on   ", ("esc", "bold"), " cancel"), classes="keys")

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)


class TextDialog(ModalScreen[None]):
    """Shows lines to read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,e,enter", "dismiss(None)", "Close", id="text.close")
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = TONE_CLASSES
    DEFAULT_CSS = TONE_CSS

    def __init__(self, title: str, lines: tuple[tuple[Span, ...], ...]) -> None:
        super().__init__(classes="modal reading")
        self._heading = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Show the lines, scrolling if there are many."""
        with VerticalScroll(classes="box") as box:
            box.border_title = self._heading
            yield Static(id="lines")

    def on_mount(self) -> None:
        """Style the lines, which needs the theme."""
        styles = tone_styles(self)
        text = Text("\n").join(to_text(spans, styles) for spans in self._lines)
        text.no_wrap = False
        text.overflow = "fold"
        self.query_one("#lines", Static).update(text)
