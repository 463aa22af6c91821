"""Use a server through one of the libraries that people build agents with, and print what it said.

Run by the Python that has the libraries: `library_client.py LIBRARY TARGETS`, where the targets are
JSON: a list of commands (lists) and addresses with their token.
"""

import asyncio
import json
import sys
from typing import Any

Met = dict[str, Any]


async def pydantic_ai(command: list[str] | None, url: str, headers: dict[str, str]) -> Met:
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    from pydantic_ai.mcp import MCPToolset

    transport = (
        StdioTransport(command[0], command[1:])
        if command
        else StreamableHttpTransport(url, headers=headers)
    )
    async with MCPToolset(transport, tool_error_behavior="error", init_timeout=60) as tools:
        listed = await tools.list_tools()
        try:
            failed = await tools.direct_call_tool("fail", {})
        except Exception as error:
            failed = str(error)
        return {
            "tools": [tool.name for tool in listed],
            "add": await tools.direct_call_tool("add", {"a": 2, "b": 3}),
            "greet": await tools.direct_call_tool("greet", {"name": "Ada"}),
            "fail": failed,
        }


async def langchain(command: list[str] | None, url: str, headers: dict[str, str]) -> Met:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    place: Any = (
        {"transport": "stdio", "command": command[0], "args": command[1:]}
        if command
        else {"transport": "streamable_http", "url": url, "headers": headers}
    )
    client = MultiServerMCPClient({"demo": place})
    tools = {tool.name: tool for tool in await client.get_tools()}
    try:
        failed = await tools["fail"].ainvoke({})
    except Exception as error:
        failed = str(error)
    return {
        "tools": list(tools),
        "add": _text(await tools["add"].ainvoke({"a": 2, "b": 3})),
        "greet": _text(await tools["greet"].ainvoke({"name": "Ada"})),
        "fail": failed,
    }


async def openai_agents(command: list[str] | None, url: str, headers: dict[str, str]) -> Met:
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

    server: Any = (
        MCPServerStdio(
            {"command": command[0], "args": command[1:]}, client_session_timeout_seconds=30
        )
        if command
        else MCPServerStreamableHttp(
            {"url": url, "headers": headers}, client_session_timeout_seconds=30
        )
    )
    async with server:
        listed = await server.list_tools()
        results = {
            name: await server.call_tool(name, arguments)
            for name, arguments in (
                ("add", {"a": 2, "b": 3}),
                ("greet", {"name": "Ada"}),
                ("fail", {}),
            )
        }
    texts = {name: result.content[0].text for name, result in results.items()}
    return {"tools": [tool.name for tool in listed], **texts}


async def llama_index(command: list[str] | None, url: str, headers: dict[str, str]) -> Met:
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    client = (
        BasicMCPClient(command[0], args=command[1:])
        if command
        else BasicMCPClient(url, headers=headers)
    )
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client).to_tool_list_async()}
    outputs = {
        "add": await tools["add"].acall(a=2, b=3),
        "greet": await tools["greet"].acall(name="Ada"),
        "fail": await tools["fail"].acall(),
    }
    return {
        "tools": list(tools),
        **{name: output.raw_output.content[0].text for name, output in outputs.items()},
    }


def _text(answer: Any) -> Any:
    return answer[0]["text"] if isinstance(answer, list) else answer


LIBRARIES = {
    "pydantic-ai": pydantic_ai,
    "langchain-mcp-adapters": langchain,
    "openai-agents": openai_agents,
    "llama-index-tools-mcp": llama_index,
}


async def main(library: str, targets: list[Any]) -> list[Met]:
    met = []
    for target in targets:
        if isinstance(target, list):
            met.append(await LIBRARIES[library](target, "", {}))
        else:
            token = target.get("token")
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            met.append(await LIBRARIES[library](None, target["url"], headers))
    return met


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))))
