"""How a client calls tools, waits for them, and starts them as tasks."""

from typing import Any, TypeVar, overload

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mcpearl.client.arguments import encode_arguments
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link
from mcpearl.client.pages import PagedItems
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.reading import Reading
from mcpearl.client.tasks.client_tasks import ClientTasks
from mcpearl.client.tasks.handle import ClientTask
from mcpearl.client.tool_calls import ToolCalls
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.protocol.errors import ToolError
from mcpearl.types.pages import PaginatedRequestParams
from mcpearl.types.tasks import ListTasksResult, Task
from mcpearl.types.tool_calls import CallToolRequestParams
from mcpearl.types.tools import ListToolsResult, Tool

T = TypeVar("T")


class Calling(Reading):
    """The part of a `Client` that calls tools."""

    _link: Link
    _known_tools: KnownTools
    _tool_calls: ToolCalls
    _tasks: ClientTasks

    async def list_tools(self, cursor: str | None = None) -> ListToolsResult:
        """Return one page of the tools.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        result = await self._page("tools/list", cursor, ListToolsResult)
        connection = self._link.connection
        if connection is not None:  # over HTTP, some parameters travel as headers too
            callable_tools = connection.learn_tools(result.tools)
            if callable_tools is not result.tools:
                result = replace(result, tools=callable_tools)
        self._known_tools.learn(result.tools)
        return result

    def tools(self) -> PagedItems[Tool]:
        """Iterate over all tools, page by page."""
        return PagedItems(self.list_tools, lambda page: page.tools)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: type[T],
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> TypedToolResult[T]: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: Any = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> TypedToolResult[Any]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: Any = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> TypedToolResult[Any]:
        """Call a tool and return its result.

        Args:
            name: the tool's name.
            arguments: the arguments by name: a dict, or an object with fields, such as a dataclass or
                a pydantic model. Values may also be such objects, dates or paths.
            returns: the type of `result.data`; by default the output schema decides.
            timeout: seconds for the call, including repeated requests; by default the client's.
            max_timeout: seconds for the call in all; with it, progress restarts `timeout`.
            on_progress: called with each progress notification; by default the client's callback.
            meta: members of `_meta` in the request.
            raise_on_error: whether to raise `ToolError` if the tool fails, instead of returning a
                result with `is_error`.
        """
        encoded: Any = UNSET
        if type(arguments) is dict:
            try:
                encoded = msgspec.Raw(msgspec.json.encode(arguments))
            except Exception:
                encoded = encode_arguments(name, arguments)  # for further types, and clear errors
        elif arguments is not None:
            encoded = encode_arguments(name, arguments)
        params = CallToolRequestParams(name=name, arguments=encoded)
        call = self._requests.call(
            "tools/call", params, TypedToolResult, timeout, max_timeout, on_progress, meta
        )
        result = await self._tool_calls.run(name, call, returns)
        if result.is_error and raise_on_error:
            raise ToolError(result.text or f"tool `{name}` failed")
        return result

    async def start_task(
        self,
        name: str,
        arguments: Any = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> ClientTask:
        """Call a tool that runs as a task, and return the task without waiting for its end.

        A modern server decides by itself which calls become tasks. If it answers at once instead, the
        handle has the result already.

        Args:
            name: the tool's name.
            arguments: the arguments by name, as in `call_tool`.
            ttl: seconds for which a server of 2025-11-25 is asked to keep the task; a modern server
                decides this by itself.
            timeout: seconds for the server to accept the call; by default the client's.
            on_progress: called with each progress notification; a modern task sends none, and reports
                its progress in its status message.
            meta: members of `_meta` in the request.
        """
        encoded = UNSET if arguments is None else encode_arguments(name, arguments)
        params = CallToolRequestParams(name=name, arguments=encoded)
        call = self._requests.call(
            "tools/call", params, TypedToolResult, timeout, None, on_progress, meta
        )
        return await self._tasks.start(call, ttl)

    def task(self, id: str) -> ClientTask:
        """Return the handle of a task that was started before, perhaps by another client.

        Args:
            id: the task's `id`.
        """
        return self._tasks.handle(id)

    def tasks(self) -> PagedItems[Task]:
        """Iterate over the states of all tasks at a server of 2025-11-25; later ones cannot list them."""
        return PagedItems(self._list_tasks, lambda page: page.tasks)

    async def _list_tasks(self, cursor: str | None) -> ListTasksResult:
        params = PaginatedRequestParams(cursor=cursor)
        return await self._requests.ask("tasks/list", params, ListTasksResult)
