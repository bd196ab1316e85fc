"""Commands that are imported when they are used, so that `fleetctl --help` costs little more than typer itself."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """Names a command, its heading in the help, and the function that answers it ("module:function")."""

    name: str
    section: str
    summary: str
    target: str

    def load(self) -> Callable[..., Any]:
        """Import and return the command's function."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return loaded


class LazyCommand(TyperCommand):
    """Stands in the group under its name and summary; parsing and running are the real command's."""

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(spec.name, short_help=spec.summary, rich_markup_mode=None)
        self.spec = spec

    @cached_property
    def real(self) -> Any:  # noqa: ANN401  # typer does not export the type of its commands
        """Return the command built from the imported function's signature."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(self.spec.name, context_settings={"help_option_names": ["-h", "--help"]})(self.spec.load())
        return typer.main.get_command(app)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # typer's own signature, passed through
        """Return the real command's context; from here on typer only meets that one."""
        return self.real.make_context(*args, **kwargs)


class SectionedGroup(TyperGroup):
    """Lists its commands under headings, in the order they were given."""

    def add_specs(self, specs: Sequence[CommandSpec]) -> None:
        """Take these commands in, unimported."""
        for spec in specs:
            self.add_command(LazyCommand(spec))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # types typer does not export
        """Write one block of names and summaries per heading."""
        del ctx
        sections: dict[str, list[tuple[str, str]]] = {}
        for command in self.commands.values():
            if isinstance(command, LazyCommand):
                sections.setdefault(command.spec.section, []).append((command.spec.name, command.spec.summary))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=14)
