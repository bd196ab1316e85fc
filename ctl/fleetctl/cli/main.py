"""The command line's entry point: one place where errors become messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Annotated, TextIO, cast

import typer

from fleetctl import os_signals
from fleetctl.cli.catalogue import COMMANDS
from fleetctl.cli.lazy import SectionedGroup
from fleetctl.cli.output import EXIT_PIPE_CLOSED, abandon_stdout
from fleetctl.cli.site import GivenSite, UserSite
from fleetctl.errors import FleetctlError, is_disk_full, state_error
from fleetctl.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.operations.site import Site

EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
# Typer's own write into start-up files, also where nothing is to be changed; `fleetctl completion` does not.
_UNWANTED_OPTIONS = frozenset({"install_completion", "show_completion"})
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells say it

app = typer.Typer(
    cls=SectionedGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from fleetctl.cli.version import version

        version()
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    readonly: Annotated[
        bool,
        typer.Option(
            "--readonly", envvar="FLEETCTL_READONLY", help="Change nothing: commands that would are refused, exit 3."
        ),
    ] = False,
) -> None:
    """Run LLM inference fleets from one SLO profile: plan, bring up, watch, keep the tail bounded."""
    del version  # its callback has answered
    if readonly and ctx.obj is not None:
        ctx.obj.is_readonly = True


def command() -> SectionedGroup:
    """Return the whole command tree, none of its commands imported."""
    group = cast("SectionedGroup", typer.main.get_command(app))
    group.params = [each for each in group.params if each.name not in _UNWANTED_OPTIONS]
    group.add_specs(COMMANDS)
    return group


def main(argv: Sequence[str] | None = None, *, site: Site | None = None) -> int:
    """Run one command line, on the user's own Site unless another is given, and return its exit code."""
    _make_streams_safe()
    arguments = sys.argv[1:] if argv is None else list(argv)
    opened = UserSite(arguments) if site is None else GivenSite(site, arguments)
    try:
        code = _run(arguments, opened)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        return EXIT_PIPE_CLOSED
    except OSError as exc:  # the last of it, on a full disk
        abandon_stdout()
        return _report(FleetctlError(f"stdout cannot be written: {exc.strerror}"))
    finally:
        opened.close()
    return code


def _make_streams_safe() -> None:
    """Have closed streams lead nowhere, and characters that a stream cannot take written as escapes."""
    if sys.stdout is None:  # `fleetctl ls >&-`
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _run(argv: list[str], opened: UserSite | GivenSite) -> int:
    try:
        with os_signals.installed():
            command()(args=argv, prog_name="fleetctl", obj=opened)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except FleetctlError as error:
        return _report(error)
    except BrokenPipeError:
        raise
    except Exception as exc:  # noqa: BLE001  # the outermost frame: a bug keeps its traceback and gets its own exit code
        if isinstance(exc, OSError) and is_disk_full(exc):
            return _report(state_error(exc.filename or "a file", exc))
        import traceback

        sys.stderr.write(printable(traceback.format_exc(), keeps_lines=True))
        sys.stderr.write("error: this is a bug in fleetctl; please report it with the traceback above\n")
        return EXIT_BUG
    return 0


def _report(error: FleetctlError) -> int:
    # What was printed before the error belongs before it, also when both streams end in one file.
    sys.stdout.flush()
    # Several faults stand one to a line, each where editors and terminals look for file:line.
    lead = "error:\n" if "\n" in error.message else "error: "
    sys.stderr.write(f"{lead}{printable(error.message, keeps_lines=True)}\n")
    hint = error.hint or ("the same command may succeed later" if error.retryable else "")
    if hint:
        sys.stderr.write(f"hint: {printable(hint, keeps_lines=True)}\n")
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
