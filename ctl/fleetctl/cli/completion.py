"""`fleetctl completion`."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from fleetctl.cli.main import command

_VARIABLE = "_FLEETCTL_COMPLETE"


class Shell(StrEnum):
    """The shells there is completion for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion script of a shell.

    bash: fleetctl completion bash > ~/.local/share/bash-completion/completions/fleetctl

    zsh:  fleetctl completion zsh > ~/.zfunc/_fleetctl   (with fpath+=~/.zfunc before compinit in ~/.zshrc)

    fish: fleetctl completion fish > ~/.config/fish/completions/fleetctl.fish
    """
    # This is how every typer program is asked for its script; it prints it and exits.
    os.environ[_VARIABLE] = f"source_{shell.value}"
    try:
        command()(args=[], prog_name="fleetctl")
    finally:
        del os.environ[_VARIABLE]
