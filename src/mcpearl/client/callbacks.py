"""Answers a server's questions: calls the application's callbacks, and makes results of their values.

The same callbacks serve both eras: a legacy server sends its questions as requests, a modern server
puts them into its results.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from mcpearl.client.handlers import Handlers
from mcpearl.protocol.errors import USER_REJECTED, LimitReached, McpError, RequestTimeout
from mcpearl.runtime.threads import ThreadPool
from mcpearl.types.base import Result
from mcpearl.types.capabilities import (
    ClientCapabilities,
    ElicitationCapability,
    ElicitationTasksCapability,
    RootsCapability,
    SamplingCapability,
    SamplingTasksCapability,
    TaskRequestsCapability,
    TasksCapability,
)
from mcpearl.types.content import TextContent
from mcpearl.types.elicitation import ElicitRequestParams, ElicitResult, schema_defaults
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcpearl.types.roots import ListRootsResult, Root
from mcpearl.types.sampling import CreateMessageRequestParams, CreateMessageResult

logger = logging.getLogger("mcpearl.callbacks")

SamplingCallback = Callable[[CreateMessageRequestParams], Any]
ElicitationCallback = Callable[[ElicitRequestParams], Any]
RootLike = Root | str | Path
Roots = RootLike | Iterable[RootLike] | Callable[[], Any]


class Callbacks:
    """The callbacks of one client. A capability is declared for each."""

    def __init__(
        self,
        sampling: SamplingCallback | None,
        elicitation: ElicitationCallback | None,
        roots: Roots | None,
        timeout: float,
    ) -> None:
        self._sampling = sampling
        self._elicitation = elicitation
        self._roots = roots if roots is None or callable(roots) else _listed(roots)
        self.handlers: Handlers | None = None
        """Handlers of further requests."""
        self._timeout = timeout
        self._pool = ThreadPool(8, name="mcpearl-callback", refusal=LimitReached)

    def capabilities(self, extensions: dict[str, dict[str, Any]]) -> ClientCapabilities:
        """Return the capabilities that these callbacks support, with the settings of extensions."""
        return ClientCapabilities(
            sampling=SamplingCapability(tools={}, context={}) if self._sampling else None,
            elicitation=ElicitationCapability(form={}, url={}) if self._elicitation else None,
            roots=RootsCapability(list_changed=True) if self._roots is not None else None,
            tasks=self._tasks_capability(),
            extensions=extensions or None,
        )

    def _tasks_capability(self) -> TasksCapability | None:
        """Return which questions a server of 2025-11-25 may ask as tasks; None if it may ask none."""
        if self._sampling is None and self._elicitation is None:
            return None
        requests = TaskRequestsCapability(
            sampling=SamplingTasksCapability(create_message={}) if self._sampling else None,
            elicitation=ElicitationTasksCapability(create={}) if self._elicitation else None,
        )
        return TasksCapability(requests=requests, cancel={}, list={})

    async def answer(self, method: str, params: Any) -> Result:
        """Answer one question of a server; if the callback raises, the answer is an error."""
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await self._answer(method, params)
        except McpError:
            raise
        except TimeoutError as error:
            if limit.expired():
                raise RequestTimeout(f"callback for {method}", self._timeout) from None
            raise _failed(method, error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _failed(method, error) from error  # something inside the callback was cancelled
        except Exception as error:
            raise _failed(method, error) from error

    async def _answer(self, method: str, params: Any) -> Result:
        match method:
            case "sampling/createMessage" if self._sampling is not None:
                return _sampled(await self._call(self._sampling, params))
            case "elicitation/create" if self._elicitation is not None:
                return _elicited(await self._call(self._elicitation, params), params)
            case "roots/list" if self._roots is not None:
                roots = self._roots
                given = await self._call(roots) if callable(roots) else roots
                return ListRootsResult(roots=[_root(root) for root in given])
        result = None if self.handlers is None else await self.handlers.answer(method, params)
        if result is None:
            raise McpError(METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        return result

    async def _call(self, function: Callable[..., Any], *given: Any) -> Any:
        if is_async(function):
            return await function(*given)
        # The function may wait for a person, so it must not block the event loop.
        value = await self._pool.run(lambda: function(*given))
        return await value if inspect.isawaitable(value) else value

    def close(self) -> None:
        """Stop the threads that run synchronous callbacks."""
        self._pool.close()


def is_async(function: Any) -> bool:
    """Tell whether calling a function or a callable object returns a coroutine."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 (its kind, not whether it is there)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _failed(method: str, error: BaseException) -> McpError:
    logger.error("the callback for %s raised", method, exc_info=error)
    return McpError(
        INTERNAL_ERROR, f"The client's callback for `{method}` raised {type(error).__name__}"
    )


def _sampled(value: Any) -> CreateMessageResult:
    if isinstance(value, CreateMessageResult):
        return value
    if isinstance(value, str):
        return CreateMessageResult(
            role="assistant",
            content=TextContent(text=value),
            model="unknown",
            stop_reason="endTurn",
        )
    if value is None or value is False:
        raise McpError(USER_REJECTED, "The user refused the sampling request")
    raise TypeError(f"a sampling callback returns text or a CreateMessageResult, not {value!r}")


def _elicited(value: Any, params: ElicitRequestParams) -> ElicitResult:
    """Make a result of what an elicitation callback returned: content, a result, a bool or None."""
    if isinstance(value, ElicitResult):
        result = value
    elif isinstance(value, dict):
        result = ElicitResult(action="accept", content=value)
    elif isinstance(value, msgspec.Struct):
        result = ElicitResult(action="accept", content=msgspec.to_builtins(value))
    elif value is True:
        result = ElicitResult(action="accept")
    elif value is False or value is None:
        return ElicitResult(action="decline" if value is False else "cancel")
    else:
        raise TypeError(f"an elicitation callback returns a dict, a bool or None, not {value!r}")
    if result.action == "accept" and params.requested_schema is not None:
        content = {**schema_defaults(params.requested_schema), **(result.content or {})}
        missing = [n for n in params.requested_schema.required or () if n not in content]
        if missing:
            raise McpError(INVALID_PARAMS, f"the form was accepted without {', '.join(missing)}")
        return ElicitResult(action="accept", content=content)
    return result


def _listed(roots: RootLike | Iterable[RootLike]) -> list[RootLike]:
    # A string is iterable too, but it is one root.
    return [roots] if isinstance(roots, (str, Path, Root)) else list(roots)


def _root(root: RootLike) -> Root:
    if isinstance(root, Root):
        return root
    if isinstance(root, Path):
        return Root(uri=root.resolve().as_uri(), name=root.name)
    return Root(uri=root) if "://" in root else _root(Path(root))
