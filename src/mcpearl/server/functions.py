"""Running a handler function whatever its kind: async on the loop, plain in a thread, or a generator.

What a generator yields leaves as progress while it runs, and all of it together is what it returns.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcpearl.schema.signature import Signature, compile_signature
from mcpearl.server.context import Context

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool


def wants_context(name: str, annotation: Any) -> bool:
    """Whether a parameter is the injected `Context`, by its annotation (`Context | None` too)."""
    if annotation is Context:
        return True
    arguments = getattr(annotation, "__args__", ())
    return Context in arguments and set(arguments) <= {Context, type(None)}


def compile_handler(function: Callable[..., Any], where: str, name: str | None) -> Signature:
    """Compile a handler's signature, with its `Context` left out."""
    return compile_signature(function, skip=wants_context, name=name, where=where)


class HandlerFunction:
    """A function with its compiled signature and the way it has to be run."""

    __slots__ = ("_pool", "name", "run", "signature")

    def __init__(self, function: Callable[..., Any], signature: Signature, pool: "ThreadPool"):
        self.signature = signature
        self.name = signature.name
        self._pool = pool
        target = _underlying(function)
        #: `await run(arguments, ctx)` gives what the function returns.
        self.run: Callable[[Any, Context], Awaitable[Any]]
        if inspect.isasyncgenfunction(target):
            self.run = self._run_stream
        elif inspect.iscoroutinefunction(target):
            self.run = self._run_async if signature.injected else self._run_async_bare
        elif inspect.isgeneratorfunction(target):
            self.run = self._run_generator
        else:
            self.run = self._run_thread

    def _injected(self, ctx: Context) -> dict[str, Any] | None:
        names = self.signature.injected
        return dict.fromkeys(names, ctx) if names else None

    def _run_async_bare(self, arguments: Any, ctx: Context) -> Awaitable[Any]:
        coroutine: Awaitable[Any] = self.signature.call(arguments, None)
        return coroutine

    def _run_async(self, arguments: Any, ctx: Context) -> Awaitable[Any]:
        coroutine: Awaitable[Any] = self.signature.call(arguments, self._injected(ctx))
        return coroutine

    async def _run_thread(self, arguments: Any, ctx: Context) -> Any:
        value = await self._pool.run(
            functools.partial(self.signature.call, arguments, self._injected(ctx))
        )
        return await value if inspect.isawaitable(value) else value

    async def _run_stream(self, arguments: Any, ctx: Context) -> Any:
        parts: list[Any] = []
        async for part in self.signature.call(arguments, self._injected(ctx)):
            parts.append(part)
            await ctx.progress(len(parts), message=_shown(part))
        return _whole(parts)

    async def _run_generator(self, arguments: Any, ctx: Context) -> Any:
        generator = self.signature.call(arguments, self._injected(ctx))
        parts: list[Any] = []
        end = object()
        while (part := await self._pool.run(lambda: next(generator, end))) is not end:
            parts.append(part)
            await ctx.progress(len(parts), message=_shown(part))
        return _whole(parts)


def _underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind partials and callable objects, which is what tells its kind."""
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isfunction(function) or inspect.ismethod(function)) and callable(function):
        call = type(function).__call__
        return call if inspect.isfunction(call) else function
    return function


def _shown(part: Any) -> str | None:
    return part if isinstance(part, str) else None


def _whole(parts: list[Any]) -> Any:
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts
