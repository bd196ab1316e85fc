"""`fleetctl init`, `validate` and `schema`."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetctl import os_signals
from fleetctl.cli.options import Output, ProfileName, Quiet
from fleetctl.cli.output import Format, View, emit, lines, write
from fleetctl.cli.progress import Progress, note_cautions
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError
from fleetctl.operations.validation import Validation
from fleetctl.printable import printable
from fleetctl.units import format_count

_STDOUT = "-"


def init(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write it; - prints it.")] = "profile.yaml",
    *,
    use_case: Annotated[
        str,
        typer.Option(
            "--use-case",
            "-u",
            metavar="NAME",
            help="quickstart, chat, voice, rag ...; 'list' lists. Default: quickstart, with --provider chat.",
        ),
    ] = "",
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help="For real engines there: aws, ssh, kubernetes.")
    ] = "",
    here: Annotated[
        bool, typer.Option("--here", help="For this machine: its GPUs, its engines, a model that fits.")
    ] = False,
    name: Annotated[str, typer.Option("--name", metavar="FLEET", help="The fleet's name.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented starter profile for a use case, for what this machine has, or for a provider's machines."""
    from fleetctl.operations.profiles import packaged_profiles, starter_profile

    if use_case == "list":
        write("".join(f"{known}\n" for known in packaged_profiles()))
        return
    if here and provider:
        raise ConfigError("--here is for this machine, --provider for others", hint="leave one out")
    if provider and use_case == "quickstart":
        raise ConfigError("the quickstart is for this machine", hint="name another use case: --use-case list")
    progress = Progress(quiet=quiet)
    if file != _STDOUT and not force and Path(file).exists():
        raise _exists(file)  # before the machine is looked at
    if here:
        from fleetctl.operations.here import profile_here

        found = os_signals.run(profile_here(site_of(ctx), name=name))
        text = found.text
        for note in found.notes:
            progress.note(note)
    else:
        text = starter_profile(use_case or ("chat" if provider else "quickstart"), name=name, provider=provider)
        text = text.replace(" FILE ", f" {file} ") if provider and file != _STDOUT else text
    if file == _STDOUT:
        write(text)
        return
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise _exists(file) from None
    except OSError as exc:
        raise ConfigError(f"{file} cannot be written: {exc.strerror}") from exc
    look = f"`fleetctl doctor {file}`, " if provider else ""
    progress.note(f"wrote {file}; next: edit it, then {look}`fleetctl plan {file}` and `fleetctl up {file}`")


def _exists(file: str) -> ConfigError:
    return ConfigError(f"{file} exists", hint="name another file, or pass --force to overwrite it")


def validate(ctx: typer.Context, profile: ProfileName, output: Output = Format.TABLE) -> None:
    """Check a profile as `plan` and `up` would: every fault with its file, line and key, or one line that it is right.

    What only this machine or a running fleet decides (free ports, memory, keys) is not looked at. Exits as the command
    that met the fault would: 3 the profile is wrong, 4 no plan keeps its promises, 6 a cap is too low.
    """
    from fleetctl.operations.validation import validate_profile

    found = validate_profile(site_of(ctx), profile)
    emit(_validation_view(found), output)
    if found.faults:
        report_faults(found)
        raise typer.Exit(found.exit_code)
    note_cautions(found.cautions, Progress(quiet=False))


def _validation_view(found: Validation) -> View:
    profile = found.profile
    if profile is None or found.profile_hash is None or found.faults:
        return View(value=found)
    count = format_count(len(profile.lanes), "lane")
    text = f"{found.file}: ok, fleet {profile.name}, {count}, profile {found.profile_hash[:12]}"
    return View(value=found, names=(profile.name,), sections=(lines(text),))


def report_faults(found: Validation) -> None:
    """Print faults to stderr, each led by its place, its hint below it."""
    sys.stderr.write("error:\n")
    for fault in found.faults:
        hint = f"  hint: {fault.hint}\n" if fault.hint else ""
        sys.stderr.write(printable(f"{fault}\n{hint}", keeps_lines=True))
    unread = "" if found.profile else "; whether a plan keeps its promises is looked at once they are mended"
    sys.stderr.write(f"{format_count(len(found.faults), 'fault')} in {printable(found.file)}{unread}\n")


class SchemaOf(StrEnum):
    """What a schema is of."""

    PROFILE = "profile"
    RUNBOOK = "runbook"


def schema(
    of: Annotated[SchemaOf, typer.Argument(metavar="profile|runbook", help="What it is of.")] = SchemaOf.PROFILE,
) -> None:
    """Print the JSON Schema of the profile, or of the runbook (draft 2020-12).

    For editors with the YAML language server: save it, and head the file with
    `# yaml-language-server: $schema=./fleetctl.schema.json`.
    """
    if of is SchemaOf.RUNBOOK:
        from fleetctl.runbooks.known_runbooks import format_schema

        write(json.dumps(format_schema(), indent=2) + "\n")
        return
    from fleetctl.operations.profiles import profile_schema

    write(json.dumps(profile_schema(), indent=2) + "\n")
