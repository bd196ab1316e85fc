"""`fleetctl init`, `validate` and `schema`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.options import Output, ProfileName, Quiet
from fleetctl.cli.output import Format, View, emit, lines, write
from fleetctl.cli.progress import Progress
from fleetctl.errors import ConfigError
from fleetctl.units import format_count

_STDOUT = "-"


def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write it; - prints it.")] = "profile.yaml",
    *,
    use_case: Annotated[
        str, typer.Option("--use-case", "-u", metavar="NAME", help="quickstart, chat, voice, rag ...; 'list' lists.")
    ] = "quickstart",
    name: Annotated[str, typer.Option("--name", metavar="FLEET", help="The fleet's name.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented starter profile for a use case."""
    from fleetctl.operations.profiles import packaged_profiles, starter_profile

    if use_case == "list":
        write("".join(f"{known}\n" for known in packaged_profiles()))
        return
    text = starter_profile(use_case, name=name)
    if file == _STDOUT:
        write(text)
        return
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} exists", hint="name another file, or pass --force to overwrite it") from None
    except OSError as exc:
        raise ConfigError(f"{file} cannot be written: {exc.strerror}") from exc
    Progress(quiet=quiet).note(f"wrote {file}; next: edit it, then `fleetctl plan {file}` and `fleetctl up {file}`")


def validate(profile: ProfileName, output: Output = Format.TABLE) -> None:
    """Check a profile: every fault with its file, line and key, or one line that says it is right."""
    from fleetctl.operations.profiles import find_profile, fingerprint

    found = find_profile(profile)
    text = f"{profile}: ok, fleet {found.name}, {format_count(len(found.lanes), 'lane')}, profile {fingerprint(found)[:12]}"
    emit(View(value=found, names=(found.name,), sections=(lines(text),)), output)


def schema() -> None:
    """Print the JSON Schema of the profile (draft 2020-12).

    For editors with the YAML language server: save it, and head the profile with
    `# yaml-language-server: $schema=./fleetctl.schema.json`.
    """
    from fleetctl.operations.profiles import profile_schema

    write(json.dumps(profile_schema(), indent=2) + "\n")
