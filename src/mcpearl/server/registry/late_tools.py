"""Tools of plain types, which are compiled when they are first needed.

A mistake in a signature or in an option shows where the tool is registered. A function that takes and
returns text, numbers, booleans, and lists and dicts of these, cannot have one: so its schemas need not
be made before a client lists or calls tools, and the server starts sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dis import opmap
from inspect import CO_COROUTINE, CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType, GenericAlias, UnionType
from typing import TYPE_CHECKING, Any

from mcpearl.runtime.loading import Loading

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from msgspec import Raw, UnsetType

    from mcpearl.protocol.events import Encoded
    from mcpearl.runtime.rate import Meter
    from mcpearl.runtime.threads import ThreadPool
    from mcpearl.server.context import Context
    from mcpearl.server.registry.tools import ToolEntry
    from mcpearl.server.tasks.options import Tasks
    from mcpearl.transports.mirrored_headers import ParameterPath
    from mcpearl.types.base import Result
    from mcpearl.types.tools import Tool

_SCALARS = (int, str, float, bool)
_INTEGERS = range(-(2**63), 2**63)  # that every JSON encoder writes
_OPTIONS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "title": (str,),
    "description": (str,),
    "timeout": (int, float),
    "lenient": (bool,),
}
_CHECKED = CO_VARARGS | CO_VARKEYWORDS  # what is refused, or needs annotations of its own
_WAITING = frozenset({opmap["GET_AWAITABLE"], opmap["GET_AITER"]})  # in all that can wait
_OF_TASKS = frozenset({"asyncio", "anyio", "current_task", "get_current_task"})


class LateTool:
    """A registered tool that is compiled when it is first called or listed.

    Args:
        function: A function for which `can_be_late` is true.
        pool: Runs the function if it is a plain `def`.
        options: The options of `ToolEntry`.
    """

    __slots__ = ("_entry", "_function", "_options", "_pool", "at_once", "name")

    meter: Meter | None = None
    scopes: frozenset[str] = frozenset()
    tasks: Tasks | None = None

    def __init__(
        self, function: Callable[..., Any], pool: ThreadPool, options: Mapping[str, Any]
    ) -> None:
        self.name: str = options.get("name") or function.__name__
        self.at_once = options.get("timeout") is None and never_waits(function)
        self._function = function
        self._pool = pool
        self._options = options
        self._entry: ToolEntry | None = None

    @property
    def mirrored(self) -> dict[ParameterPath, str]:
        """The parameters that calls mirror into headers: none, since only annotations say so."""
        return {}

    @property
    def definition(self) -> Tool:
        """What clients see of the tool."""
        return self.compiled().definition

    def call(self, raw: Raw | UnsetType, ctx: Context) -> Coroutine[Any, Any, Result | Encoded]:
        """Call the tool with raw arguments."""
        return self.compiled().call(raw, ctx)

    def compiled(self) -> ToolEntry:
        """Return the tool with its schemas, which are made the first time."""
        if self._entry is None:
            with Loading():
                from mcpearl.server.registry.tools import ToolEntry

            self._entry = ToolEntry(self._function, self._pool, **self._options)
        return self._entry


def can_be_late(function: Any, options: Mapping[str, Any]) -> bool:
    """Return whether nothing about a function and its options can be refused when it is compiled.

    It may return false where nothing would be: such tools are compiled when they are registered.
    """
    for name, value in options.items():
        if value is not None and not isinstance(value, _OPTIONS.get(name, ())):
            return False
    if type(function) is not FunctionType:
        return False
    if not _is_name(options.get("name") or function.__name__):
        return False
    if function.__dict__ or function.__code__.co_flags & _CHECKED:
        return False
    annotations = dict(function.__annotations__)
    if not _can_be_returned(annotations.pop("return", None)):
        return False
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if len(annotations) != len(names) or not all(map(_is_plain, annotations.values())):
        return False
    defaults = dict(function.__kwdefaults__ or {})
    positional = function.__defaults__ or ()
    first = code.co_argcount - len(positional)
    defaults.update(zip(names[first : code.co_argcount], positional, strict=True))
    return all(_fits(value, annotations[name]) for name, value in defaults.items())


def _is_name(name: str) -> bool:
    """Return whether every client accepts this as a tool's name."""
    return name.isascii() and name.isidentifier() and len(name) <= 64


def _is_plain(annotation: Any) -> bool:
    if isinstance(annotation, GenericAlias):
        key, *value = annotation.__args__
        if annotation.__origin__ is dict and key is str:
            return all(map(_is_plain, value))
        return annotation.__origin__ is list and _is_plain(key)
    if isinstance(annotation, UnionType):
        members = [each for each in annotation.__args__ if each is not type(None)]
        return len(members) == 1 and _is_plain(members[0])
    return any(annotation is scalar for scalar in _SCALARS)


def _can_be_returned(annotation: Any) -> bool:
    return annotation is None or _is_plain(annotation)


def _fits(default: Any, annotation: Any) -> bool:
    if default is None:
        return isinstance(annotation, UnionType)
    if type(default) is int and default not in _INTEGERS:
        return False
    return type(default) is annotation


def never_waits(function: Any) -> bool:
    """Whether this is an `async def` without any `await`, which does not deal with tasks either."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_flags & CO_COROUTINE:
        return False
    return _WAITING.isdisjoint(code.co_code[::2]) and _OF_TASKS.isdisjoint(code.co_names)
