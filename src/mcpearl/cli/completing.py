"""Completion in shells of what a server offers, and of words that bash would take apart.

A server is asked for its lists when the key is pressed. Pressing it must not run anything,
so only servers at an address are asked: an address that was typed, or that is in a file of the user's
own. Files of the current directory may come from a stranger, so their servers are neither started nor
asked. A command in a file of the user's own may run something from the current directory, so it is not
started either. Errors are not shown; then there are no completions.
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
from mcpearl.cli.output import CommandOutput, clean
from mcpearl.cli.target import ServerTarget, configured_servers, connected, target_of

STARTS = "_MCPEARL_STARTS"
"""Set by the script of a shell in which completion may start servers."""
_PATIENCE = 10.0  # seconds in which a server has to answer
_BREAKS = re.compile(r".*[:=@]", re.DOTALL)
# What a shell takes as it is, and variables of URI templates. bash puts completions into the line as they
# are, where those of a hostile server could run a command.
_PLAIN = re.compile(r"(?!-)(?:[\w./:@%+=,-]|\{[+/.]?\w+\})+")
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
    ).replace(" $1)", " %(prog_name)s)")  # `./mcpearl` of the current directory may be a stranger's
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
        if target.auth == "oauth" or not _may_be_asked(target):  # oauth would open the browser
            return []
        return asyncio.run(_names(target, incomplete, kinds))
    except Exception:
        return []


def is_plain(text: str) -> bool:
    """Return whether a shell takes a text as it is when it stands in a line."""
    return _PLAIN.fullmatch(text) is not None


def _may_be_asked(target: ServerTarget) -> bool:
    if os.environ.get(STARTS) == "1":
        return True
    reach = target.reach()
    if isinstance(reach, str):
        return "://" in reach
    own = (each.entry for each in configured_servers() if each.scope == "user")
    return not isinstance(reach, list) and reach.url is not None and reach in own


async def _names(
    target: ServerTarget, incomplete: str, kinds: Sequence[str]
) -> list[CompletionItem[Any]]:
    out = CommandOutput()
    out.live = False  # a bar would be drawn over the line that is being typed
    async with asyncio.timeout(_PATIENCE), connected(target, out) as client:
        lists = await offered(client, kinds)
    return [
        CompletionItem(name, help=clean(summary_of(each)))
        for kind in kinds
        for each in getattr(lists, kind)
        if (name := _NAMES[kind](each)).startswith(incomplete) and is_plain(name)
    ]
