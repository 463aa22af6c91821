"""Reads a callable's signature and resolves every annotation in it.

Supports functions, bound methods, callable objects, classes, `functools.partial` and decorated
functions with `__wrapped__`. Annotations written as text are evaluated where the function was
defined: in its module, its closure, and the enclosing function's locals while that is running.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import UNSET, Struct

from mcpearl.schema.errors import SignatureError

__all__ = ["MISSING", "Parameter", "Subject", "inspect_callable", "opened", "unpacked"]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


#: No annotation or no default was written (None would be a value).
MISSING: Any = _Missing()


class Parameter(Struct, frozen=True):
    """One parameter with its resolved annotation, which is MISSING if none was written."""

    name: str
    kind: inspect._ParameterKind
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is MISSING


class Subject(Struct, frozen=True):
    """The callable that is compiled, and how error messages refer to it."""

    function: Callable[..., Any]
    name: str
    where: str
    parameters: tuple[Parameter, ...]
    returns: Any
    doc: str | None

    def __str__(self) -> str:
        return f"{self.where} `{self.name}`"


def inspect_callable(function: Callable[..., Any], *, name: str | None, where: str) -> Subject:
    """Read the signature of a callable. Raises `SignatureError`."""
    inner = opened(function)
    if name is None:
        name = str(getattr(inner, "__name__", type(inner).__name__))
    subject = f"{where} `{name}`"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise SignatureError(f"{subject}: the signature cannot be read: {error}") from error
    parameters = tuple(
        Parameter(
            each.name,
            each.kind,
            _resolved(each.annotation, inner, f"{subject}: parameter `{each.name}`"),
            MISSING if each.default is inspect.Parameter.empty else each.default,
        )
        for each in signature.parameters.values()
    )
    returns = signature.return_annotation
    if isinstance(function, type):
        returns = function
    resolved = _resolved(returns, inner, f"{subject}: return value")
    return Subject(function, name, where, parameters, resolved, _documentation(function, inner))


def unpacked(parameter: Parameter) -> list[Parameter] | None:
    """Return the parameters that `**kwargs: Unpack[Options]` stands for; None for others.

    Those that may be absent have the default `UNSET`.
    """
    if typing.get_origin(parameter.annotation) is not typing.Unpack:
        return None
    (fields,) = typing.get_args(parameter.annotation)
    if not typing.is_typeddict(fields):
        return None
    found = []
    for name, hint in typing.get_type_hints(fields, include_extras=True).items():
        needed = name in fields.__required_keys__
        while typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            needed = typing.get_origin(hint) is typing.Required
            (hint,) = typing.get_args(hint)
        found.append(
            Parameter(name, inspect.Parameter.KEYWORD_ONLY, hint, MISSING if needed else UNSET)
        )
    return found


def opened(function: Any) -> Any:
    """Return the plain function inside a partial, method, wrapper or callable object."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(function, type):
            return vars(function).get("__init__", function)
        elif not isinstance(function, types.FunctionType) and hasattr(
            type(function).__call__, "__code__"
        ):
            return type(function).__call__
        else:
            return function


def _documentation(function: Any, inner: Any) -> str | None:
    if inspect.isroutine(function) or isinstance(function, type):
        return inspect.getdoc(function)
    # The class docstring of a partial or callable object does not describe the call.
    own = getattr(inner, "__doc__", None) or type(function).__doc__
    if isinstance(function, functools.partial):
        own = getattr(inner, "__doc__", None)
    return inspect.cleandoc(own) if own else None


def _resolved(annotation: Any, function: Any, place: str) -> Any:
    if annotation is inspect.Parameter.empty:
        return MISSING
    # `get_type_hints` fails as a whole if one annotation fails, so resolve one at a time.
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    failed: NameError | None = None
    for names in _namespaces(function):
        try:
            hints = typing.get_type_hints(
                holder, getattr(function, "__globals__", {}), names, include_extras=True
            )
        except NameError as error:
            failed = error
        except (TypeError, SyntaxError, AttributeError) as error:
            raise SignatureError(f"{place} has an annotation that fails: {error}") from error
        else:
            return hints["it"]
    raise SignatureError(
        f"{place} has annotation `{annotation}`, which cannot be resolved: {failed}; "
        "import the name in the module at run time, not only for type checking"
    ) from failed


def _namespaces(function: Any) -> Iterator[dict[str, Any]]:
    """Yield the local names an annotation may refer to, likeliest first."""
    code = getattr(function, "__code__", None)
    own = {each.__name__: each for each in getattr(function, "__type_params__", ())}
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False
    ):
        try:
            own[name] = cell.cell_contents
        except ValueError:
            continue
    yield own
    enclosing, _, _ = getattr(function, "__qualname__", "").rpartition(".<locals>.")
    frame = sys._getframe() if enclosing else None
    while frame is not None:
        if frame.f_code.co_qualname == enclosing:
            yield {**frame.f_locals, **own}
        frame = frame.f_back
