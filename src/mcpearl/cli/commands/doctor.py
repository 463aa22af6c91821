"""Say what is installed and what is missing, and why a server does not answer."""

import asyncio

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.diagnosis.installation import examine_installation
from mcpearl.cli.diagnosis.server import examine_server
from mcpearl.cli.diagnosis.state import Check
from mcpearl.cli.exits import Exit
from mcpearl.cli.output import CommandOutput, clean, folded
from mcpearl.cli.target import ServerTarget, optional_target_options

_MARKS = {"ok": ("✓", "green"), "bad": ("✗", "red"), "absent": ("-", None)}


@make_command()
@optional_target_options
def command(out: CommandOutput, target: ServerTarget | None) -> int:
    """Say what is installed and what is missing, and why a server does not answer.

    With TARGET, every step on the way to that server is tried; without, this installation and the files
    of hosts on this computer are checked.
    """
    checks: list[Check] = []
    failed = False

    def found(check: Check) -> None:
        nonlocal failed
        failed = failed or check.state == "bad"
        checks.append(check)
        if not out.as_json:
            _write(out, check)

    if target is None:
        examine_installation(found)
    else:
        asyncio.run(examine_server(target, found))
    if out.as_json:
        out.document({"checks": [check._asdict() for check in checks]})
    return Exit.FAILED if failed else Exit.OK


def _write(out: CommandOutput, check: Check) -> None:
    mark, colour = _MARKS[check.state]
    about = f"{check.what}: {check.text}" if check.text else check.what
    text = folded(clean(f"{mark} {about}"), out.columns, 2)
    click.echo(out.styled(mark, fg=colour) + text.removeprefix(mark), color=out.colour)
    if check.hint:
        out.prose(f"    {check.hint}", dim=True)
