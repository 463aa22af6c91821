"""Walks through servers with FastMCP's client and prints what it met, as one JSON object for each.

Run by the interpreter of FastMCP's environment, with walks as JSON: `[["legacy", [command, …]], …]`.
"""

import asyncio
import json
import sys
from typing import Any

import mcp_types as types  # type: ignore[import-not-found,unused-ignore]
from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.client.elicitation import ElicitResult  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from mcp.client.extension import advertise  # type: ignore[import-not-found,unused-ignore]
from mcp.client.subscriptions import listen  # type: ignore[import-not-found,unused-ignore]

NOTE = "demo://note"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
META: dict[str, Any] = {"traceparent": TRACE, "example.com/more": [1]}


class Audited(types.Result):  # type: ignore[misc,unused-ignore]
    since: int
    trace: str | None


async def walk(mode: str, target: list[str]) -> dict[str, Any]:
    """Use everything that the demo server has and FastMCP's client knows."""
    met: dict[str, Any] = {"asked": [], "logs": [], "progress": [], "notices": []}
    updated, grown = asyncio.Event(), asyncio.Event()

    async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
        met["asked"].append(message)
        if params.mode == "url":
            return ElicitResult(action="accept")
        return {"city": "Oslo", "insured": True} if message == "Where to?" else {}

    async def sample(messages: Any, params: Any, context: Any) -> str:
        met["asked"].append(messages[0].content.text)
        return "Yes."

    async def log(message: Any) -> None:
        met["logs"].append([message.level, message.data])

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        met["progress"].append([progress, total])

    async def notice(message: Any) -> None:
        method = getattr(message, "method", None) or getattr(message.root, "method", "")
        if method == "notifications/resources/updated":
            updated.set()
        elif method == "notifications/tools/list_changed":
            grown.set()

    async with Client(
        StdioTransport(target[0], target[1:], keep_alive=False),
        mode=mode,
        roots=["file:///srv/demo"],
        elicitation_handler=elicit,
        sampling_handler=sample,
        log_handler=log,
        progress_handler=progress,
        message_handler=notice,
        extensions=[advertise("com.example/audit")],
        timeout=60,
    ) as client:
        met["tools"] = [tool.name for tool in await client.list_tools()]
        met["add"] = (await client.call_tool("add", {"a": 2, "b": 3})).data
        met["fail"] = (
            await client.call_tool("fail", {"reason": "x"}, raise_on_error=False)
        ).is_error
        met["resources"] = [str(each.uri) for each in await client.list_resources()]
        met["templates"] = [each.uri_template for each in await client.list_resource_templates()]
        met["note"] = (await client.read_resource(NOTE))[0].text
        met["prompts"] = [each.name for each in await client.list_prompts()]
        brief = await client.get_prompt("brief", {"city": "Oslo"})
        met["brief"] = brief.messages[0].content.text
        ref: Any = {"type": "ref/prompt", "name": "visit"}
        argument = {"name": "street", "value": "K"}
        met["completion"] = (
            await client.complete(prompt(ref), argument, context_arguments={"city": "Oslo"})
        ).values
        await client.call_tool("count", {"to": 3, "pause": 0.05})
        if mode == "legacy":
            await client.set_logging_level("info")
        await client.call_tool("chatter")
        for tool in ("book", "survey", "pay"):
            met[tool] = (await client.call_tool(tool)).content[0].text
        met["consult"] = (await client.call_tool("consult", {"question": "Nice?"})).content[0].text
        met["workplace"] = (await client.call_tool("workplace")).structured_content["result"]
        reflected = await client.call_tool("reflect", meta=META)
        met["reflect"] = reflected.structured_content["result"]
        met["tag"] = (reflected.meta or {}).get("example.com/tag")
        params = {"since": 3, "_meta": META}
        audit = types.Request[dict[str, Any], str](method="audit/read", params=params)
        answer = await client.session.send_request(audit, Audited)
        met["audit"] = {"since": answer.since, "trace": answer.trace}
        try:
            await client.call_tool("sleep", {"seconds": 60}, timeout=2.0)
        except Exception as error:
            met["cancelled"] = type(error).__name__
        while not (await client.call_tool("interrupted")).data:
            await asyncio.sleep(0.02)
        if mode == "legacy":
            await client.session.subscribe_resource(NOTE)
            await client.call_tool("write", {"text": "second"})
            await asyncio.wait_for(updated.wait(), 30)
            await client.call_tool("grow")
            await asyncio.wait_for(grown.wait(), 30)
        else:  # FastMCP leaves this to the SDK below it
            wanted: dict[str, Any] = {"tools_list_changed": True, "resource_subscriptions": [NOTE]}
            async with listen(client.session, **wanted) as changes, asyncio.timeout(30):
                await client.call_tool("write", {"text": "second"})
                met["notices"].append(type(await anext(changes)).__name__)
                await client.call_tool("grow")
                met["notices"].append(type(await anext(changes)).__name__)
        met["read"] = (await client.read_resource(NOTE))[0].text
    return met


def prompt(ref: dict[str, str]) -> Any:
    return types.PromptReference(**ref)


async def main() -> None:
    for mode, target in json.loads(sys.argv[1]):
        print(json.dumps(await walk(mode, target)), flush=True)


asyncio.run(main())
