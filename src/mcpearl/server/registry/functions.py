"""Runs handler functions of every kind: coroutines on the loop, plain functions in a thread.

The values that a generator yields are sent as progress while it runs; all of them together are its
return value.
"""

import functools
import inspect
import sys
from collections import abc
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin

from mcpearl.runtime.arguments import refuse_text
from mcpearl.schema.errors import SignatureError
from mcpearl.schema.parameters import MISSING, Parameter
from mcpearl.schema.signature import Signature, compile_signature
from mcpearl.server.context import Context, share_of
from mcpearl.server.registry.late_tools import never_waits

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool
    from mcpearl.server.registry.dependencies import Dependencies

PLAIN = frozenset({int, str, float, bool, dict, list, tuple, bytes, type(None)})
"""Types whose values are neither results nor awaitable: `isinstance` would take longer to find out."""
_STREAMS = (
    *(abc.AsyncGenerator, abc.AsyncIterator, abc.AsyncIterable),
    *(abc.Generator, abc.Iterator, abc.Iterable),
)


def wants_context(parameter: Parameter) -> bool:
    """Return whether a parameter is annotated `Context`, `Context[…]` or either `| None`."""
    annotation = parameter.annotation
    if get_origin(annotation) in (Union, UnionType):
        members = [each for each in get_args(annotation) if each is not type(None)]
        annotation = members[0] if len(members) == 1 else annotation
    return (get_origin(annotation) or annotation) is Context


def compile_handler(function: Any, where: str, name: str | None) -> Signature:
    """Compile a handler's signature without the parameters that the server fills in."""
    if not callable(function):
        kind = type(function).__name__
        hint = (
            "register it outside of the class, as `app.tool(Class.method)`"
            if isinstance(function, classmethod)
            else "pass a function"
        )
        raise TypeError(f"a {where} is a function, and this is a `{kind}`: {function!r}; {hint}")
    what = f"{where} `{name or getattr(function, '__name__', type(function).__name__)}`"

    def filled_in(parameter: Parameter) -> bool:
        if _has_dependency(parameter):
            return True
        if parameter.annotation is MISSING:
            _check_bare(parameter.name, what)
        return wants_context(parameter)

    return compile_signature(function, skip=filled_in, name=name, where=where)


def _has_dependency(parameter: Parameter) -> bool:
    # A parameter can have one only if `Depends` has been imported.
    if "mcpearl.server.registry.dependencies" not in sys.modules:
        return False
    from mcpearl.server.registry.dependencies import dependency_of

    return dependency_of(parameter) is not None


def _check_bare(name: str, what: str) -> None:
    """Refuse names without annotation that are almost never meant as arguments."""
    if name in ("self", "cls"):
        raise SignatureError(
            f"{what}: `{name}` would be an argument of every call, since the method is not bound "
            "to an object; register it once there is one, as in `app.tool(instance.method)`"
        )
    if name == "ctx":
        raise SignatureError(
            f"{what}: parameter `ctx` has no annotation, so it would be an argument of every call; "
            "write `ctx: Context` to get the context of the call"
        )


class HandlerFunction:
    """A function with its compiled signature and the way to run it."""

    __slots__ = (
        "_bare",
        "_dependencies",
        "_joins",
        "_pool",
        "at_once",
        "is_async",
        "is_stream",
        "name",
        "returns",
        "run",
        "signature",
    )

    def __init__(self, function: Callable[..., Any], signature: Signature, pool: "ThreadPool"):
        self.signature = signature
        self.name = signature.name
        self._pool = pool
        target = _underlying(function)
        #: The annotation of the value returned by `run`.
        self.returns = signature.returns
        self._joins = True  # whether parts that are all text are joined
        is_generator = inspect.isgeneratorfunction(target)
        self.is_stream = is_generator or inspect.isasyncgenfunction(target)
        self.is_async = inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)
        #: `await run(arguments, ctx)` returns the function's value.
        self.run: Callable[..., Awaitable[Any]]
        if inspect.isasyncgenfunction(target):
            self.run = self._run_stream
            self._note_parts()
        elif inspect.iscoroutinefunction(target):
            # If nothing is injected, this argument is not used.
            self.run = self._run_async if signature.injected else cast("Any", signature.call)
        elif is_generator:
            self.run = self._run_generator
            self._note_parts()
        else:
            self.run = self._run_thread
        self._dependencies: Dependencies | None = None
        if any(map(_has_dependency, signature.filled)):
            from mcpearl.server.registry.dependencies import compile_dependencies

            self._dependencies = compile_dependencies(
                signature.filled, wants_context, pool, f"`{signature.name}`"
            )
            self._bare, self.run = self.run, self._run_filled
        #: Whether the function is known to return without waiting, and to ask for no task.
        self.at_once = self._dependencies is None and never_waits(target)

    @property
    def has_dependencies(self) -> bool:
        """Whether parameters are filled in by functions."""
        return self._dependencies is not None

    def _note_parts(self) -> None:
        """Derive the return annotation from the type that the generator yields."""
        annotation = self.signature.returns
        part = get_args(annotation)[0] if get_origin(annotation) in _STREAMS else Any
        self._joins = part is str or part is Any
        self.returns = part if self._joins else list[part]  # type: ignore[valid-type]

    def _injected(self, ctx: Context) -> dict[str, Any] | None:
        names = self.signature.injected
        return dict.fromkeys(names, ctx) if names else None

    async def _run_filled(self, arguments: Any, ctx: Context) -> Any:
        """Run the function with its dependencies, and close them afterwards."""
        assert self._dependencies is not None
        async with AsyncExitStack() as stack:
            values = await self._dependencies.fill(ctx, stack)
            return await self._bare(arguments, ctx, values)

    def _run_async(
        self, arguments: Any, ctx: Context, values: dict[str, Any] | None = None
    ) -> Awaitable[Any]:
        coroutine: Awaitable[Any] = self.signature.call(arguments, values or self._injected(ctx))
        return coroutine

    async def _run_thread(
        self, arguments: Any, ctx: Context, values: dict[str, Any] | None = None
    ) -> Any:
        call = functools.partial(self.signature.call, arguments, values or self._injected(ctx))
        value = await self._pool.run(call, share_of(ctx))
        return await value if inspect.isawaitable(value) else value

    async def run_in_place(
        self, arguments: Any, ctx: Context, values: dict[str, Any] | None = None
    ) -> Any:
        """Call a plain function in this thread, for a process that does nothing else."""
        value = self.signature.call(arguments, values or self._injected(ctx))
        if type(value) in PLAIN:
            return value
        return await value if inspect.isawaitable(value) else value

    async def _run_stream(
        self, arguments: Any, ctx: Context, values: dict[str, Any] | None = None
    ) -> Any:
        parts: list[Any] = []
        call = self.signature.call
        async with aclosing(call(arguments, values or self._injected(ctx))) as stream:
            async for part in stream:
                parts.append(part)
                await ctx.progress(len(parts), message=_shown(part))
        return "".join(parts) if self._joins and _is_text(parts) else parts

    async def _run_generator(
        self, arguments: Any, ctx: Context, values: dict[str, Any] | None = None
    ) -> Any:
        generator = self.signature.call(arguments, values or self._injected(ctx))
        parts: list[Any] = []
        end = object()
        while (
            part := await self._pool.run(lambda: next(generator, end), share_of(ctx))
        ) is not end:
            parts.append(part)
            await ctx.progress(len(parts), message=_shown(part))
        return "".join(parts) if self._joins and _is_text(parts) else parts


def _underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind partials and callable objects, which determines its kind."""
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isfunction(function) or inspect.ismethod(function)) and callable(function):
        call = type(function).__call__
        return call if inspect.isfunction(call) else function
    return function


def _shown(part: Any) -> str | None:
    return part if isinstance(part, str) else None


def _is_text(parts: list[Any]) -> bool:
    return all(isinstance(part, str) for part in parts)


def scopes_of(given: Iterable[str]) -> frozenset[str]:
    """Return the scopes that a tool, resource or prompt needs, as a set."""
    refuse_text("scopes", given)
    scopes = frozenset(given)
    for scope in scopes:
        if not scope or any(
            not "!" <= character <= "~" or character in '"\\' for character in scope
        ):
            raise ValueError(f"{scope!r} is not a scope: no blanks, quotes or backslashes")
    return scopes
