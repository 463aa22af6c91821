"""Print what makes a shell complete the commands, options and targets of mcpearl."""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from mcpearl.cli.command import make_command
from mcpearl.cli.completing import STARTS, WholeWords
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput

_VARIABLE = "_MCPEARL_COMPLETE"
_HOW = {
    "bash": 'add to ~/.bashrc: eval "$(mcpearl completion bash)"',
    "zsh": 'add to ~/.zshrc: eval "$(mcpearl completion zsh)"',
    "fish": "mcpearl completion fish > ~/.config/fish/completions/mcpearl.fish",
}


@make_command()
@click.argument("shell", required=False, type=click.Choice(list(_HOW)))
@click.option("--start-servers", is_flag=True, help="Let Tab start the server that TARGET names.")
def command(out: CommandOutput, shell: str | None, start_servers: bool) -> None:
    """Print what makes a shell complete commands, options and targets.

    SHELL is bash, zsh or fish; by default the one of this login. What a server offers is completed if it
    is at an address; with `--start-servers` files and commands are started for it, and servers in files
    of the current directory are asked too.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = WholeWords if name == "bash" else get_completion_class(name)
    if kind is None:
        raise CommandFailed(
            f"no completion for the shell {name!r}; choose one of {', '.join(_HOW)}", Exit.USAGE
        )
    from mcpearl.cli.main import mcpearl

    script = kind(mcpearl, {}, "mcpearl", _VARIABLE).source()
    # click's script for fish cuts what is said about a command at its first comma.
    script = script.replace('string split "," $completion', 'string split -m 1 "," $completion')
    if start_servers:
        script = script.replace(f"{_VARIABLE}=", f"{STARTS}=1 {_VARIABLE}=")
    out.show({"shell": name, "script": script, "install": _HOW[name]}, lambda: click.echo(script))
    if out.tty:
        out.note(_HOW[name])
