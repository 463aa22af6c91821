"""Calls tools and checks their results against output schemas, for which the tools must be listed.

The tools are listed when a called tool is not known, and when a server refuses the headers of a call
because the tool needs others now. Listing is optional: it is bounded, uses what is left of the call's
time, and if it fails the result is returned unchecked. A server that announces changes all the time,
or cannot list, is asked less and less often.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

from mcpearl.client.cache import CacheView
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link
from mcpearl.client.pages import pages
from mcpearl.client.requests import ClientCall, Requests
from mcpearl.client.tasks.client_tasks import ClientTasks
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.protocol.errors import ConnectionLost, LimitReached, McpearlError, McpError
from mcpearl.runtime.backoff import Backoff, Retries
from mcpearl.types.base import encode
from mcpearl.types.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from mcpearl.types.tools import ListToolsResult

logger = logging.getLogger("mcpearl.client")

# Bounds of a listing that the application did not ask for.
MAX_PAGES = 1000
MAX_TOOLS = 10_000
MAX_BYTES = 64 << 20
_SUGGESTION_TIME = 2.0  # seconds to find out which tool may have been meant

_AFTER_LISTING = Backoff(delays=(0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 10.0), settled_after=30.0)
_AFTER_FAILURE = Backoff(delays=(1.0, 2.0, 5.0, 10.0, 30.0, 60.0), settled_after=120.0)


class ToolCalls:
    """Calls tools for one client."""

    def __init__(
        self,
        link: Link,
        requests: Requests,
        known: KnownTools,
        cache: CacheView,
        list_page: Callable[[str | None], Awaitable[ListToolsResult]],
        *,
        validate: bool,
        tasks: ClientTasks,
    ) -> None:
        self._link = link
        self._requests = requests
        self._known = known
        self._cache = cache
        self._list_page = list_page  # gets a page of the tools, and remembers them
        self._validate = validate
        self._tasks = tasks
        self.tasks_offered = False
        """Whether the server is a legacy one that runs tool calls as tasks."""
        self._pace = _ListingPace()
        self._listing = asyncio.Lock()  # held by the one call that lists the tools
        self._listed = 0  # how often they were listed
        self._listed_as = 0  # the generation of `known` that the last list belongs to

    def begin(self) -> None:
        """Forget what belonged to an earlier event loop."""
        self._pace = _ListingPace()
        self._listing = asyncio.Lock()

    async def run(
        self, name: str, call: ClientCall[TypedToolResult[Any]], returns: Any = None
    ) -> TypedToolResult[Any]:
        """Call the tool `name` and check its result. The call is made by `Requests.call`."""
        try:
            if self.tasks_offered and await self._only_as_task(name, call):
                result = await self._tasks.run(call)
            else:
                result = await self._requests.run(call)
        except McpError as error:
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                raise await self._explained(name, call, error) from None
            if error.code != HEADER_MISMATCH:
                raise
            self._cache.clear("tools/list")  # the tool needs other headers than when it was listed
            if not await self._list(name, _deadline(call)):
                raise
            result = await self._requests.run(call)
        if self._validate and not result.is_error and not self._known.check(name, result):
            await self.learn(name, _deadline(call))
            self._known.check(name, result)
        if returns is None:
            if not self._validate:  # otherwise the check has set the reader
                result.read_with(self._known.reader(name))
        elif not result.is_error:
            result.read_as(returns, name, wrapped=self._known.is_wrapped(name))
        return result

    async def _only_as_task(self, name: str, call: ClientCall[Any]) -> bool:
        """Whether a tool of a legacy server has to be called as a task, according to its list."""
        if not self._known.knows(name):
            await self.learn(name, _deadline(call))
        return self._known.task_support(name) == "required"

    async def _explained(self, name: str, call: ClientCall[Any], error: McpError) -> McpError:
        """Name tools that may have been meant, if the server does not have this one."""
        if "tool" not in error.message.lower():
            return error  # it is about something else
        if not self._known.knows(name):
            soon = asyncio.get_running_loop().time() + _SUGGESTION_TIME
            await self.learn(name, min(soon, _deadline(call)))
        similar = [] if self._known.is_listed(name) else self._known.similar(name)
        if not similar or "did you mean" in error.message:
            return error
        meant = ", ".join(f"`{each}`" for each in similar)
        return McpError(error.code, f"{error.message}; did you mean {meant}?", error.data)

    async def learn(self, name: str, deadline: float) -> None:
        """List the tools before `deadline`, so that the output schema and hints of one are known."""
        while await self._list(name, deadline):
            if self._listed_as == self._known.generation:
                self._known.settle(name)
                return
            # The server announced a change meanwhile: that list says nothing about the tool.

    async def _list(self, name: str, deadline: float) -> bool:
        """List all tools; return whether that succeeded before `deadline`."""
        before = self._listed
        began = False
        try:
            async with asyncio.timeout_at(None if deadline == inf else deadline), self._listing:
                if self._listed != before and self._listed_as == self._known.generation:
                    return True  # another call has listed them meanwhile
                if not self._pace.may_list():
                    logger.debug("tool %.128s is not checked: the tools were just listed", name)
                    return False
                began = True
                await self._link.while_up(self._list_all())
                return True
        except McpearlError as error:
            problem = str(error)
            began = not isinstance(error, ConnectionLost)  # reconnecting has delays of its own
        except TimeoutError:
            problem = "the time of the call was over"
        if began:
            self._pace.failed()
        logger.warning("tool %.128s is not checked: the tools cannot be listed: %s", name, problem)
        return False

    async def _list_all(self) -> None:
        generation = self._known.generation
        count = size = 0
        async for page in pages(self._list_page, MAX_PAGES):
            count += len(page.tools)
            size += len(encode(page.tools))
            if page.next_cursor is not None and (count >= MAX_TOOLS or size >= MAX_BYTES):
                raise LimitReached(f"after {count} tools, {size} bytes, the list goes on")
        self._listed += 1
        self._listed_as = generation
        self._pace.listed()


class _ListingPace:
    """Decides when a client that was not asked to list tools may list them again."""

    def __init__(self) -> None:
        self._listings = Retries(_AFTER_LISTING)
        self._failures = Retries(_AFTER_FAILURE)
        self._last = -inf
        self._not_before = -inf

    def may_list(self) -> bool:
        """Whether the tools may be listed now."""
        return asyncio.get_running_loop().time() >= self._not_before

    def listed(self) -> None:
        """Note that the tools were listed."""
        self._wait(self._listings)

    def failed(self) -> None:
        """Note that they could not be listed."""
        self._wait(self._failures)

    def _wait(self, retries: Retries) -> None:
        now = asyncio.get_running_loop().time()
        retries.worked_for(now - self._last)
        self._last = now
        self._not_before = now + retries.next_delay()


def _deadline(call: ClientCall[Any]) -> float:
    return call.deadlines(asyncio.get_running_loop().time())[0]
