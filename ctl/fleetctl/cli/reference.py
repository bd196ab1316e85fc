"""Writes docs/cli.md from the commands themselves: python -m fleetctl.cli.reference > docs/cli.md."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from fleetctl import errors
from fleetctl.cli.lazy import LazyCommand, SectionedGroup
from fleetctl.cli.main import EXIT_BUG, EXIT_INTERRUPTED, command
from fleetctl.cli.output import API_VERSION, EXIT_PIPE_CLOSED, Format

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLUMNS = 100
_OWN_CODES = {
    0: "Done.",
    2: "Wrong usage; also changes pending: `plan --detailed-exitcode`, and `up` where running replicas keep old launch settings.",
    EXIT_BUG: "A bug in fleetctl; the traceback is on stderr.",
    EXIT_INTERRUPTED: "Ctrl-C. A fleet that was coming up or going down goes on.",
    EXIT_PIPE_CLOSED: "The reader of stdout went away, as with `fleetctl events | head`.",
}


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_page()) + "\n"


def exit_codes() -> dict[int, str]:
    """Return every exit code with its meaning, in order."""
    found: dict[int, list[str]] = {code: [meaning] for code, meaning in _OWN_CODES.items()}
    for kind in dict.fromkeys(_kinds(errors.FleetctlError)):
        if kind is errors.FleetctlError:
            found.setdefault(kind.exit_code, []).append("The answer is no: a declined question, a failed check.")
            continue
        summary = (inspect.getdoc(kind) or "").splitlines()[0]
        found.setdefault(kind.exit_code, []).append(f"`{kind.__name__}`: {summary}")
    return {code: " ".join(found[code]) for code in sorted(found)}


def _kinds(kind: type[errors.FleetctlError]) -> Iterator[type[errors.FleetctlError]]:
    yield kind
    for child in kind.__subclasses__():
        if (
            child.__module__ == errors.__name__
        ):  # a package's own are caught in it, or are one of these to whoever sees them
            yield from _kinds(child)


def _page() -> Iterator[str]:
    yield "# The command line"
    yield ""
    yield "<!-- Made by `python -m fleetctl.cli.reference > docs/cli.md`; a test keeps it true. -->"
    yield ""
    yield f"Reads take `-o {'|'.join(Format)}`, and `--watch` where they change. Data goes to stdout, progress and"
    yield f"questions to stderr; JSON and YAML objects begin with `apiVersion: {API_VERSION}`, under which keys are only added"
    yield "([json.md](json.md) names each);"
    yield "colour only to a terminal and never against `NO_COLOR`. Questions are asked on a terminal"
    yield "only; elsewhere `--yes` must have been given. `FLEET` may be left out while there is one fleet, or be set by"
    yield "`FLEETCTL_FLEET`."
    yield ""
    yield from _exit_code_table()
    for name, found in _commands("", command()):
        yield ""
        yield f"## {name}"
        yield ""
        yield "```text"
        context = found.make_context(
            f"fleetctl {name}", [], resilient_parsing=True, terminal_width=_COLUMNS, max_content_width=_COLUMNS
        )
        yield from (line.rstrip() for line in context.get_help().splitlines())
        yield "```"


def _commands(prefix: str, group: SectionedGroup) -> Iterator[tuple[str, LazyCommand]]:
    """Yield every command by its full name, those of a group right after the group."""
    for found in group.commands.values():
        if isinstance(found, LazyCommand):
            name = f"{prefix}{found.spec.name}"
            yield name, found
            if isinstance(found.real, SectionedGroup):
                yield from _commands(f"{name} ", found.real)


def _exit_code_table() -> Iterator[str]:
    yield "| exit code | meaning |"
    yield "|---|---|"
    for code, meaning in exit_codes().items():
        yield f"| {code} | {meaning} |"


if __name__ == "__main__":
    from fleetctl.cli.output import write

    write(reference())
