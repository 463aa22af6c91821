"""What all commands have in common: `--json`, async functions, suggestions for mistyped options."""

import inspect
from collections.abc import Callable
from typing import Any

import click

from mcpearl.cli.output import CommandOutput

Function = Callable[..., Any]


class Command(click.Command):
    """A command that answers unknown options and missing arguments with a suggestion."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and name the closest option to one that is unknown."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            close = closest(error.option_name, _options(self))
            raise click.NoSuchOption(error.option_name, None, close, error.ctx) from None


def _options(command: click.Command) -> list[str]:
    return [name for each in command.params for name in each.opts if name.startswith("--")]


def closest(word: str, known: list[str]) -> list[str]:
    """Return the known words that a mistyped one is close to, the closest first."""
    from difflib import get_close_matches

    # The dashes of options are alike in all of them, and say nothing.
    names = {name.lstrip("-").lower(): name for name in known}
    return [names[each] for each in get_close_matches(word.lstrip("-").lower(), names, 3, 0.6)]


def make_command(name: str | None = None, **settings: Any) -> Callable[[Function], click.Command]:
    """Make a function a command, with `--json`.

    Args:
        name: the command's name, if it is not the file's.
        settings: as of `click.command`.
    """

    def decorate(function: Function) -> click.Command:
        def run(as_json: bool, **given: Any) -> Any:
            result = function(CommandOutput(as_json), **given)
            if not inspect.iscoroutine(result):
                return result
            import asyncio  # `--help` does without

            return asyncio.run(result)

        run.__doc__ = inspect.getdoc(function)
        run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        option = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON.")
        named = name or function.__module__.rpartition(".")[2]
        first = (run.__doc__ or "").partition("\n")[0]
        return click.command(named, cls=Command, **{"short_help": first, **settings})(option(run))

    return decorate
