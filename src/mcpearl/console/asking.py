"""The requests a page can send, each as the method of `Client` that applications use for it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mcpearl.client.client import Client
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.console.actions import SendRequest
from mcpearl.types.base import to_builtins

MAX_LISTED = 5_000  # entries of a list that are shown
PATIENCE = 900.0  # seconds for a task, and for a person to answer a question

PageRequestRunner = Callable[[Client, SendRequest, ProgressCallback], Awaitable[Any]]


async def run(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    """Send a request and return its result as JSON data.

    Args:
        client: The client that sends it.
        ask: The request.
        progress: Called with the progress of the request.
    """
    known = _KNOWN.get(ask.method)
    if known is not None:
        return await known(client, ask, progress)
    return to_builtins(await client.request(ask.method, ask.params, timeout=ask.timeout))


async def _call_tool(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    name, arguments = ask.params["name"], ask.params.get("arguments")
    if ask.task:
        task = await client.start_task(
            name, arguments, timeout=ask.timeout, on_progress=progress, meta=ask.params.get("_meta")
        )
        return {"taskId": task.id} if task.id else to_builtins(await task.result())
    result: TypedToolResult[Any] = await client.call_tool(
        name,
        arguments,
        timeout=ask.timeout,
        on_progress=progress,
        meta=ask.params.get("_meta"),
        raise_on_error=False,
    )
    return to_builtins(result)


async def _read(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    uri = ask.params["uri"]
    return to_builtins(await client.read_resource(uri, timeout=ask.timeout, on_progress=progress))


async def _prompt(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    name, arguments = ask.params["name"], ask.params.get("arguments")
    return to_builtins(
        await client.get_prompt(name, arguments, timeout=ask.timeout, on_progress=progress)
    )


async def _subscribe(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    await client.subscribe(ask.params["uri"])
    return {}


async def _unsubscribe(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    await client.unsubscribe(ask.params["uri"])
    return {}


async def _ping(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    await client.ping(ask.timeout)
    return {}


async def _set_level(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    await client.set_log_level(ask.params["level"])
    return {}


async def _task_state(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    return to_builtins(await client.task(ask.params["taskId"]).status())


async def _cancel_task(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    await client.task(ask.params["taskId"]).cancel()
    return {}


async def _task_result(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
    return to_builtins(await client.task(ask.params["taskId"]).result(PATIENCE))


def _listing(entries: Callable[[Client], AsyncIterator[Any]], member: str) -> PageRequestRunner:
    """Return what lists all pages, up to a bound."""

    async def listed(client: Client, ask: SendRequest, progress: ProgressCallback) -> Any:
        found = []
        async for entry in entries(client):
            found.append(to_builtins(entry))
            if len(found) >= MAX_LISTED:
                return {member: found, "cut": True}
        return {member: found}

    return listed


_KNOWN: dict[str, PageRequestRunner] = {
    "tools/list": _listing(Client.tools, "tools"),
    "resources/list": _listing(Client.resources, "resources"),
    "resources/templates/list": _listing(Client.resource_templates, "resourceTemplates"),
    "prompts/list": _listing(Client.prompts, "prompts"),
    "tasks/list": _listing(Client.tasks, "tasks"),
    "tools/call": _call_tool,
    "resources/read": _read,
    "prompts/get": _prompt,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "ping": _ping,
    "logging/setLevel": _set_level,
    "tasks/get": _task_state,
    "tasks/cancel": _cancel_task,
    "tasks/result": _task_result,
}
