"""Commands that are imported when they are used, so that `fleetctl --help` costs little more than typer itself."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


_STDOUT = "-"


class Effect(StrEnum):
    """What a command does to the world; every command declares it."""

    READS = "reads"
    WRITES = "writes"  # to a fleet: refused when read only, and in the audit log
    WRITES_FILES = "writes files"  # of the user's own, and no fleet: refused when read only


def _guard(command: Any, spec: CommandSpec) -> None:  # noqa: ANN401  # typer does not export the type of its commands
    """Have a command that changes something refused when read only, and kept in the audit log; a dry run is neither."""
    invoke = command.invoke

    def guarded(ctx: Any) -> Any:  # noqa: ANN401  # as above
        if not spec.writes_by(ctx.params):
            return invoke(ctx)
        from fleetctl.operations.audit import audited, refuse_if_readonly

        opened = ctx.find_root().obj
        if spec.effect is Effect.WRITES_FILES:
            refuse_if_readonly(spec.name, is_readonly=opened.is_readonly)
            return invoke(ctx)
        with audited(opened.site, _path_of(ctx), argv=opened.argv, is_command=True):
            return invoke(ctx)

    command.invoke = guarded


def _path_of(ctx: Any) -> str:  # noqa: ANN401  # as above
    """Return a command's name behind the program's: "scale", "runbook run"."""
    return str(ctx.command_path).partition(" ")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """Names a command, its heading in the help, and the function that answers it ("module:function")."""

    name: str
    section: str
    summary: str
    target: str
    effect: Effect
    only_with: tuple[str, ...] = ()  # options without any of which it only reads

    def load(self) -> Callable[..., Any]:
        """Import and return the command's function."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return loaded

    def writes_by(self, parameters: Mapping[str, object]) -> bool:
        """Whether it changes something when it is given these; a dry run never does."""
        if self.effect is Effect.READS or parameters.get("dry_run"):
            return False
        if self.effect is Effect.WRITES_FILES and parameters.get("file") == _STDOUT:
            return False
        return not self.only_with or any(parameters.get(name) for name in self.only_with)


def _readonly_option() -> Any:  # noqa: ANN401  # typer does not export the type of its options
    """Return the global --readonly, which may stand behind a command's name too, as kubectl's global flags may."""

    def take(ctx: typer.Context, wanted: bool) -> None:  # the signature of a callback
        root: Any = ctx.find_root().obj
        if wanted and root is not None:
            root.is_readonly = True

    def carrier(
        readonly: Annotated[bool, typer.Option("--readonly", hidden=True, expose_value=False, callback=take)] = False,
    ) -> None:
        del readonly

    app = typer.Typer(add_completion=False)
    # Its annotation names what is known here alone, so it is not left as text.
    carrier.__annotations__["readonly"] = Annotated[
        bool, typer.Option("--readonly", hidden=True, expose_value=False, callback=take)
    ]
    app.command()(carrier)
    return next(each for each in typer.main.get_command(app).params if each.name == "readonly")


class LazyCommand(TyperCommand):
    """Stands in the group under its name and summary; parsing and running are the real command's."""

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(spec.name, short_help=spec.summary, rich_markup_mode=None)
        self.spec = spec

    @cached_property
    def real(self) -> Any:  # noqa: ANN401  # typer does not export the type of its commands
        """Return the command built from the imported function's signature, or the group that was imported."""
        loaded = self.spec.load()
        if isinstance(loaded, SectionedGroup):
            return loaded
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(self.spec.name, context_settings={"help_option_names": ["-h", "--help"]})(loaded)
        command = typer.main.get_command(app)
        if all(parameter.name != "readonly" for parameter in command.params):
            command.params.append(_readonly_option())
        _guard(command, self.spec)
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # typer's own signature, passed through
        """Return the real command's context; from here on typer only meets that one."""
        return self.real.make_context(*args, **kwargs)


# A command's heading, name, summary, function as `module:name` of this package, and effect.
CommandRow = tuple[str, str, str, str, Effect]


def nested_group(name: str, help_text: str, rows: Iterable[CommandRow]) -> SectionedGroup:
    """Return a command that has commands of its own, unimported."""
    group = SectionedGroup(
        name=name,
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    group.add_specs([spec_of(row) for row in rows])
    return group


def spec_of(row: CommandRow) -> CommandSpec:
    """Return what is known of a command before it is imported."""
    section, name, summary, target, effect = row
    return CommandSpec(section=section, name=name, summary=summary, target=f"fleetctl.cli.{target}", effect=effect)


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
