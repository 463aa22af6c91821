"""Parameters that functions fill in: `db: Database = Depends(connect)`.

The dependencies of a handler are determined when it is registered. At a call the functions run in the
order of the parameters, each once per call; generators and context managers are closed after the handler
has ended, the last one first. A model does not see these parameters.
"""

import functools
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from mcpearl.schema.errors import SignatureError
from mcpearl.schema.parameters import Parameter, inspect_callable
from mcpearl.server.context import Context, share_of

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool


class Dependency:
    """What `Depends` returns: the default of a parameter that `function` fills in."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(
                f"`Depends` takes a function, as in `Depends(connect)`, not {function!r}"
            )
        self.function = function


def Depends(function: Callable[..., Any]) -> Any:  # noqa: N802 - the name people know
    """Let a function fill in a parameter, once per call. The model does not see the parameter.

    >>> async def connect():
    ...     async with open_database() as database:
    ...         yield database
    >>> @app.tool
    ... async def count(table: str, db: Database = Depends(connect)) -> int:
    ...     return await db.count(table)

    Args:
        function: Returns the value, or yields it and is closed after the call. It may be async, and its
            own parameters may be a `Context` or depend on other functions.
    """
    return Dependency(function)


def dependency_of(parameter: Parameter) -> Callable[..., Any] | None:
    """Return the function that fills in a parameter, or None for other parameters."""
    said = (parameter.default, *get_args(parameter.annotation)[1:])
    if get_origin(parameter.annotation) is not Annotated:
        said = (parameter.default,)
    return next((each.function for each in said if isinstance(each, Dependency)), None)


class _DependencyKind(Enum):
    PLAIN = "a function, run in a thread"
    ASYNC = "a coroutine function"
    MANAGED = "a context manager, used in threads"
    ASYNC_MANAGED = "an async context manager"


class _DependencyStep:
    """One function to run, after those it depends on."""

    __slots__ = ("before", "contexts", "function", "kind")

    def __init__(
        self,
        function: Callable[..., Any],
        kind: _DependencyKind,
        contexts: tuple[str, ...],
        before: dict[str, "_DependencyStep"],
    ) -> None:
        self.function = function  # of the last two kinds: returns the context manager
        self.kind = kind
        self.contexts = contexts
        self.before = before


class Dependencies:
    """The functions that fill in the parameters of one handler."""

    __slots__ = ("_contexts", "_pool", "_steps")

    def __init__(
        self, contexts: tuple[str, ...], steps: dict[str, _DependencyStep], pool: "ThreadPool"
    ) -> None:
        self._contexts = contexts
        self._steps = steps
        self._pool = pool

    async def fill(self, ctx: Context, stack: AsyncExitStack) -> dict[str, Any]:
        """Return the values of all parameters; what has to be closed is entered into the stack."""
        made: dict[_DependencyStep, Any] = {}
        values: dict[str, Any] = dict.fromkeys(self._contexts, ctx)
        for name, step in self._steps.items():
            values[name] = await self._make(step, ctx, stack, made)
        return values

    async def _make(
        self,
        step: _DependencyStep,
        ctx: Context,
        stack: AsyncExitStack,
        made: dict[_DependencyStep, Any],
    ) -> Any:
        if step in made:
            return made[step]
        given: dict[str, Any] = dict.fromkeys(step.contexts, ctx)
        for name, before in step.before.items():
            given[name] = await self._make(before, ctx, stack, made)
        call = functools.partial(step.function, **given)
        match step.kind:
            case _DependencyKind.ASYNC:
                value = await call()
            case _DependencyKind.ASYNC_MANAGED:
                value = await stack.enter_async_context(call())
            case _DependencyKind.MANAGED:
                value = await stack.enter_async_context(self._in_threads(call, ctx))
            case _:
                value = await self._pool.run(call, share_of(ctx))
                value = await value if inspect.isawaitable(value) else value
        made[step] = value
        return value

    @asynccontextmanager
    async def _in_threads(self, call: Callable[[], Any], ctx: Context) -> Any:
        """Enter and leave a context manager of plain functions in threads."""
        manager = call()
        share = share_of(ctx)
        value = await self._pool.run(manager.__enter__, share)
        try:
            yield value
        except BaseException as error:
            leave = functools.partial(manager.__exit__, type(error), error, error.__traceback__)
            if not await self._pool.run(leave, share):
                raise
        else:
            await self._pool.run(functools.partial(manager.__exit__, None, None, None), share)


def compile_dependencies(
    filled: tuple[Parameter, ...],
    wants_context: Callable[[Parameter], bool],
    pool: "ThreadPool",
    what: str,
) -> Dependencies | None:
    """Return the dependencies of a handler; None if only the context is filled in.

    Raises `SignatureError` for a parameter that cannot be filled in, and for a cycle.
    """
    functions = {each.name: found for each in filled if (found := dependency_of(each)) is not None}
    if not functions:
        return None
    known: dict[Callable[..., Any], _DependencyStep] = {}
    steps = {
        name: _step(function, wants_context, what, known, ())
        for name, function in functions.items()
    }
    contexts = tuple(each.name for each in filled if each.name not in functions)
    return Dependencies(contexts, steps, pool)


def _step(
    function: Callable[..., Any],
    wants_context: Callable[[Parameter], bool],
    what: str,
    known: dict[Callable[..., Any], _DependencyStep],
    above: tuple[Callable[..., Any], ...],
) -> _DependencyStep:
    if function in known:
        return known[function]
    subject = inspect_callable(function, name=None, where=f"{what}: dependency")
    if function in above:
        raise SignatureError(f"{subject} depends on itself")
    contexts: list[str] = []
    before: dict[str, _DependencyStep] = {}
    for each in subject.parameters:
        needed = dependency_of(each)
        if needed is not None:
            before[each.name] = _step(needed, wants_context, what, known, (*above, function))
        elif wants_context(each):
            contexts.append(each.name)
        elif each.required and each.kind not in _VARIADIC:
            raise SignatureError(
                f"{subject}: parameter `{each.name}` cannot be filled in; annotate it with "
                "`Context`, write `Depends(…)` as its default, or give it another default"
            )
    kind, called = _kind_of(function)
    made = known[function] = _DependencyStep(called, kind, tuple(contexts), before)
    return made


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _kind_of(function: Callable[..., Any]) -> tuple[_DependencyKind, Callable[..., Any]]:
    """Return the kind of a function, and what to call: for a generator, what makes a manager."""
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = type(target).__call__
    if inspect.isasyncgenfunction(target):
        return _DependencyKind.ASYNC_MANAGED, asynccontextmanager(function)
    if inspect.isgeneratorfunction(target):
        return _DependencyKind.MANAGED, contextmanager(function)
    if inspect.iscoroutinefunction(target):
        return _DependencyKind.ASYNC, function
    inner = inspect.unwrap(target)  # the function below `@asynccontextmanager` or `@contextmanager`
    if inspect.isasyncgenfunction(inner):
        return _DependencyKind.ASYNC_MANAGED, function
    if inspect.isgeneratorfunction(inner):
        return _DependencyKind.MANAGED, function
    return _DependencyKind.PLAIN, function
