"""`fleetctl completion`."""

import contextlib
import io
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.main import command
from fleetctl.cli.output import write
from fleetctl.cli.progress import Progress
from fleetctl.errors import ConfigError

_VARIABLE = "_FLEETCTL_COMPLETE"


class Shell(StrEnum):
    """The shells there is completion for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Which shell.")],
    *,
    install: Annotated[bool, typer.Option("--install", help="Write it where the shell looks for it.")] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Remove what --install wrote.")] = False,
) -> None:
    """Print the completion script of a shell, or install it for this user; no start-up file is touched.

    It completes commands, options, fleets, lanes, replicas and packaged profiles.
    """
    if uninstall:
        _remove(shell)
        return
    script = _script(shell)
    if not install:
        write(script)
        return
    path, remark = _place(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be written: {exc.strerror}", hint=f"fleetctl completion {shell} > FILE"
        ) from exc
    Progress().note(f"wrote {path}; {remark}")


def _remove(shell: Shell) -> None:
    path, _ = _place(shell)
    try:
        path.unlink()
    except FileNotFoundError:
        Progress().note(f"there is no {path}")
    except OSError as exc:
        raise ConfigError(f"{path} cannot be removed: {exc.strerror}") from exc
    else:
        Progress().note(f"removed {path}")


def _script(shell: Shell) -> str:
    script = io.StringIO()
    # This is how every typer program is asked for its script; it prints it and exits.
    os.environ[_VARIABLE] = f"source_{shell.value}"
    try:
        with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
            command()(args=[], prog_name="fleetctl")
    finally:
        del os.environ[_VARIABLE]
    return script.getvalue().lstrip("\n")  # zsh autoloads a file only if it begins with #compdef


def _place(shell: Shell) -> tuple[Path, str]:
    """Return where the shell looks for a user's completions, and what else it needs."""
    again = "it takes effect in new shells"
    match shell:
        case Shell.BASH:
            completions = _xdg("XDG_DATA_HOME", ".local/share") / "bash-completion" / "completions"
            return completions / "fleetctl", f"{again}, where the bash-completion package is installed"
        case Shell.ZSH:
            return Path.home() / ".zfunc" / "_fleetctl", "zsh needs `fpath+=~/.zfunc` before `compinit` in ~/.zshrc"
        case Shell.FISH:
            return _xdg("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "fleetctl.fish", again


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback
