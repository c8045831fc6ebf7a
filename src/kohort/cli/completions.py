"""`kohort completions`: the script that makes a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kohort.cli.style import command, new_app

app = new_app()


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


@command(app)
def completions(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")],
) -> None:
    """Print the completion script of a shell.

    bash: add `eval "$(kohort completions bash)"` to ~/.bashrc; zsh: the same with zsh in ~/.zshrc, after compinit;
    fish: `kohort completions fish > ~/.config/fish/completions/kohort.fish`.
    """
    from typer.completion import get_completion_script

    typer.echo(get_completion_script(prog_name="kohort", complete_var="_KOHORT_COMPLETE", shell=shell.value))
