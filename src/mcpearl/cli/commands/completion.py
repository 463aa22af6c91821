"""Print what makes a shell complete the commands, options and targets of mcpearl."""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from mcpearl.cli.command import make_command
from mcpearl.cli.completing import WholeWords
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput

_HOW = {
    "bash": 'add to ~/.bashrc: eval "$(mcpearl completion bash)"',
    "zsh": 'add to ~/.zshrc: eval "$(mcpearl completion zsh)"',
    "fish": "mcpearl completion fish > ~/.config/fish/completions/mcpearl.fish",
}


@make_command()
@click.argument("shell", required=False, type=click.Choice(list(_HOW)))
def command(out: CommandOutput, shell: str | None) -> None:
    """Print what makes a shell complete commands, options and targets.

    SHELL is bash, zsh or fish; by default the one of this login.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = WholeWords if name == "bash" else get_completion_class(name)
    if kind is None:
        raise CommandFailed(
            f"no completion for the shell {name!r}; choose one of {', '.join(_HOW)}", Exit.USAGE
        )
    from mcpearl.cli.main import mcpearl

    script = kind(mcpearl, {}, "mcpearl", "_MCPEARL_COMPLETE").source()
    # click's script for fish cuts what is said about a command at its first comma.
    script = script.replace('string split "," $completion', 'string split -m 1 "," $completion')
    out.show({"shell": name, "script": script, "install": _HOW[name]}, lambda: click.echo(script))
    if out.tty:
        out.note(_HOW[name])
