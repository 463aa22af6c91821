"""The entry of the command: finds the command that was asked for, runs it, and exits with its code."""

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from mcpearl._version import __version__
from mcpearl.cli import commands
from mcpearl.cli.command import closest
from mcpearl.cli.exits import CommandFailed, Exit, as_failure
from mcpearl.cli.output import clean, colours, for_stderr

# Under which heading the help shows a command; one that is not named here comes under the last.
SECTIONS = {
    "Serve": ("run", "dev", "gateway", "bridge", "cluster"),
    "Talk to a server": (
        *("list", "call", "read", "prompt", "complete"),
        *("ping", "tasks", "watch", "inspect", "console", "bench"),
    ),
    "Set up": ("init", "install", "uninstall", "doctor", "migrate", "receipts", "completion"),
}

_NAME = "mcpearl:"  # what an error begins with


class Commands(click.Group):
    """The commands of the package, each loaded when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [module.name for module in pkgutil.iter_modules(commands.__path__)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{commands.__name__}.{cmd_name}")
        found: click.Command = module.command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line; suggest others for one that is unknown."""
        name = args[0]
        if not name.startswith("-") and name not in (known := self.list_commands(ctx)):
            close = closest(name, known)
            hint = f" Did you mean {' or '.join(close)}?" if close else " See `mcpearl --help`."
            ctx.fail(f"there is no command {clean(name)!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in sections, with the first line of each file."""
        known = self.list_commands(ctx)
        placed = {name for names in SECTIONS.values() for name in names}
        for title, names in SECTIONS.items():
            last = title == list(SECTIONS)[-1]
            here = [*names, *(sorted(set(known) - placed) if last else ())]
            rows = [(name, _summary(name)) for name in here if name in known]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _summary(name: str) -> str:
    """Return the first line of a command's file, without running it."""
    spec = importlib.util.find_spec(f"{commands.__name__}.{name}")
    source = getattr(spec.loader, "get_source", lambda _: None)(spec.name) if spec else None
    first = (source or "").partition("\n")[0]
    return first.strip('"')


def _help_text() -> str:
    codes = ", ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in Exit)
    return (
        "Serve MCP servers, talk to them, and look after them.\n\n"
        "TARGET is a file (server.py, server.py:app), a URL, a command in quotes, a configuration "
        "(mcp.json, mcp.json:name), or the name of a server that a host on this computer has.\n\n"
        f"Exit codes: {codes}."
    )


@click.group(
    cls=Commands,
    help=_help_text(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="mcpearl %(version)s")
def mcpearl() -> None:
    """Do nothing: what `mcpearl` does is in its commands."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit.

    Args:
        arguments: the command line; by default that of the process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # its encoding may lack what is written
            stream.reconfigure(errors="replace")
    if "_MCPEARL_COMPLETE" in os.environ:
        _complete_whole_words()
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has gone, as `head` does. Nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.FAILED
    sys.exit(int(code))


def _complete_whole_words() -> None:
    from click.shell_completion import add_completion_class

    from mcpearl.cli.completing import WholeWords

    add_completion_class(WholeWords)


def _run(arguments: list[str]) -> int:
    try:
        result = mcpearl.main(arguments, "mcpearl", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return Exit.INTERRUPTED
    except click.ClickException as error:
        if "--json" in arguments:
            _document(CommandFailed(error.format_message(), Exit.USAGE))
        error.show()
        return error.exit_code
    except BrokenPipeError:
        raise
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        _say(end.code)  # a server that cannot be served says so in this way
        return Exit.FAILED
    except BaseExceptionGroup as group:
        return _failed(next(_leaves(group)), group, arguments)
    except Exception as error:
        return _failed(error, error, arguments)
    return result if isinstance(result, int) else Exit.OK


def _failed(error: BaseException, raised: BaseException, arguments: list[str]) -> int:
    failure = as_failure(error)
    if failure is None:
        raise raised
    if "--json" in arguments:
        _document(failure)
    _say(str(failure), failure.hint)
    return failure.code


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _document(failure: CommandFailed) -> None:
    import json

    shown: dict[str, Any] = {"message": str(failure), "code": int(failure.code)}
    click.echo(json.dumps({"error": {**shown, "hint": failure.hint}}))


def _say(message: str, hint: str | None = None) -> None:
    coloured = colours(sys.stderr)
    said = for_stderr(f"{_NAME} {message}").removeprefix(_NAME)
    click.echo(f"{click.style(_NAME, fg='red', bold=True)}{said}", err=True, color=coloured)
    if hint:
        click.echo(click.style(for_stderr(f"  {hint}"), dim=True), err=True, color=coloured)
