"""Completion in shells of what a server offers, and of words that bash would take apart.

A server is asked for its lists when the key is pressed: one at an address is connected to, another is
started. What goes wrong then is not said: there is nothing to complete.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, split_arg_string

from mcpearl.cli.offered import offered, summary_of
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import ServerTarget, connected, target_of

_PATIENCE = 10.0  # seconds in which a server has to answer
_BREAKS = re.compile(r".*[:=@]", re.DOTALL)
_NAMES: dict[str, Callable[[Any], str]] = {
    "tools": lambda each: each.name,
    "prompts": lambda each: each.name,
    "resources": lambda each: each.uri,
    "templates": lambda each: each.uri_template,
}


class WholeWords(BashComplete):
    """Completion in bash, which takes words apart at `:` and `=` and completes the last part.

    So addresses and URIs are read from the whole line, and only the last part of them is returned.
    """

    source_template = BashComplete.source_template.replace(
        "COMP_CWORD=$COMP_CWORD",
        'COMP_CWORD=$COMP_CWORD COMP_LINE="$COMP_LINE" COMP_POINT=$COMP_POINT',
    )
    _begun = ""  # of the word, what bash leaves as it is

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is completed, and that one."""
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        typed = line[: int(os.environ["COMP_POINT"])]
        _, *words = split_arg_string(typed)
        last = words.pop() if words and not typed[-1:].isspace() else ""
        found = _BREAKS.match(last)
        self._begun = found[0] if found else ""
        return words, last

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return the part of a completion that bash puts in place of the last part."""
        return f"{item.type},{str(item.value).removeprefix(self._begun)}"


def complete_offer(ctx: click.Context, incomplete: str, kinds: Sequence[str]) -> list[Any]:
    """Return what a command's target offers of these kinds and begins so.

    Args:
        ctx: of the command line as far as it was typed.
        incomplete: the beginning of a name or URI.
        kinds: `tools`, `prompts`, `resources`, `templates`.
    """
    if not ctx.params.get("target"):
        return []
    logging.disable()  # it would be written into the line that is being typed
    try:
        target = target_of(ctx.params)
        if target.auth == "oauth":  # it would open the browser
            return []
        return asyncio.run(_names(target, incomplete, kinds))
    except Exception:
        return []


async def _names(
    target: ServerTarget, incomplete: str, kinds: Sequence[str]
) -> list[CompletionItem[Any]]:
    async with asyncio.timeout(_PATIENCE), connected(target, CommandOutput()) as client:
        lists = await offered(client, kinds)
    return [
        CompletionItem(name, help=summary_of(each))
        for kind in kinds
        for each in getattr(lists, kind)
        if (name := _NAMES[kind](each)).startswith(incomplete)
    ]
