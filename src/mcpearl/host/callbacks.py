"""One set of callbacks for all servers of a host: a callback can get the name of the server that asks."""

import inspect
from collections.abc import Callable
from typing import Any

from mcpearl.client.callbacks import Roots, is_async


def told(callback: Callable[..., Any] | None, server: str) -> Callable[[Any], Any] | None:
    """Return a callback of one argument, which adds the server's name if `callback` takes two.

    Args:
        callback: The callback that the application passed.
        server: The server's name.
    """
    if callback is None or not _takes(callback, 2):
        return callback
    return _with_server(callback, server)


def roots_of(roots: Any, server: str) -> Roots | None:
    """Return the roots for one server; a function that takes an argument is passed the server's name.

    Args:
        roots: The roots that the application passed, or a function that returns them.
        server: The server's name.
    """
    if not callable(roots) or not _takes(roots, 1):
        return roots  # type: ignore[no-any-return]
    if is_async(roots):

        async def ask() -> Any:
            return await roots(server)

        return ask
    return lambda: roots(server)


def _with_server(callback: Callable[..., Any], server: str) -> Callable[[Any], Any]:
    if is_async(callback):  # must stay async: a client runs other functions in a thread

        async def answer(params: Any) -> Any:
            return await callback(params, server)

        return answer
    return lambda params: callback(params, server)


def _takes(callback: Callable[..., Any], count: int) -> bool:
    """Tell whether a function needs `count` positional arguments, or takes any number."""
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):  # some functions written in C
        return False
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.kind in positional and each.default is each.empty]
    return len(needed) == count
