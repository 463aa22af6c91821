"""Prompts and completion: message templates with arguments, and suggestions for the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mcpearl import types
from mcpearl.protocol.errors import McpError
from mcpearl.schema.errors import ArgumentsError
from mcpearl.server.context import Context, share_of
from mcpearl.server.registry.functions import HandlerFunction, compile_handler, scopes_of
from mcpearl.server.registry.registration import check_texts, icons_of
from mcpearl.server.registry.results import prompt_result
from mcpearl.types.base import Icon, Result
from mcpearl.types.jsonrpc import INVALID_PARAMS

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool

MAX_COMPLETIONS = 100


class PromptEntry:
    """A registered prompt."""

    __slots__ = ("_function", "definition", "scopes")

    def __init__(
        self,
        function: Callable[..., Any],
        pool: ThreadPool,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        check_texts(name=name, title=title, description=description)
        signature = compile_handler(function, "prompt", name)
        self.scopes = scopes_of(scopes)
        self._function = HandlerFunction(function, signature, pool)
        self.definition = types.Prompt(
            name=name or signature.name,
            title=title,
            description=description or signature.description,
            arguments=_arguments(signature.input_schema) or None,
            icons=icons_of(icons, f"prompt `{name or signature.name}`"),
            meta=meta,
        )

    async def get(self, given: dict[str, str], ctx: Context) -> Result:
        """Return the prompt's messages for these arguments."""
        try:
            arguments = self._function.signature.decode_strings(given)
        except ArgumentsError as error:
            name = self.definition.name
            raise McpError(
                INVALID_PARAMS,
                f"Invalid arguments for prompt `{name}`: {error}",
                {"name": name, "argument": error.argument},
            ) from None
        value = await self._function.run(arguments, ctx)
        if isinstance(value, Result) and not isinstance(value, types.GetPromptResult):
            return value
        return prompt_result(value, self.definition.name, self.definition.description)


def _arguments(schema: dict[str, Any]) -> list[types.PromptArgument]:
    required = schema.get("required", ())
    return [
        types.PromptArgument(
            name=name,
            title=definition.get("title"),
            description=definition.get("description"),
            required=name in required,
        )
        for name, definition in schema.get("properties", {}).items()
    ]


Completer = Callable[..., Any]


async def run_completer(
    completer: Completer, params: types.CompleteRequestParams, pool: ThreadPool, ctx: Context
) -> types.CompleteResult:
    """Call a completer with the typed value and, if it takes them, the other arguments."""
    value = params.argument.value
    others = (params.context.arguments if params.context else None) or {}
    takes = len(inspect.signature(completer).parameters)
    given = (value, others, ctx)[:takes]
    if inspect.iscoroutinefunction(completer):
        found = await completer(*given)
    else:
        found = await pool.run(lambda: completer(*given), share_of(ctx))
        if inspect.isawaitable(found):
            found = await found
    return _completed(found)


def _completed(found: Any) -> types.CompleteResult:
    if isinstance(found, types.CompleteResult):
        return replace(found, completion=_within_bound(found.completion))
    if isinstance(found, types.Completion):
        return types.CompleteResult(completion=_within_bound(found))
    if isinstance(found, str):
        found = [found]
    values = [str(value) for value in found or ()]
    shown = values[:MAX_COMPLETIONS]
    return types.CompleteResult(
        completion=types.Completion(
            values=shown, total=len(values), has_more=len(values) > len(shown)
        )
    )


def _within_bound(completion: types.Completion) -> types.Completion:
    if len(completion.values) <= MAX_COMPLETIONS:
        return completion
    return replace(completion, values=completion.values[:MAX_COMPLETIONS], has_more=True)
