"""A client for every scenario of the official conformance suite.

    MCP_CONFORMANCE_SCENARIO=tools_call python examples/everything/client.py http://localhost:3000/mcp

The suite starts it once per scenario, with the scenario's name and the protocol version in the
environment and the URL of its own server as the last argument.
"""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any

from mcpearl import AuthorizationFailed, Client
from mcpearl.auth import (
    ClientCredentials,
    EnterpriseManaged,
    MemoryStorage,
    OAuth,
    WorkloadIdentity,
)
from mcpearl.types import ElicitRequestParams, Tool

VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "auto")
PATIENCE = 60.0  # seconds to connect: the suite runs all its scenarios at once
Scenario = Callable[[str], Coroutine[Any, Any, None]]


async def connect(address: str) -> None:
    """Connect and print the server's name."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        print(client.server_info, client.protocol_version)


async def call_tools(address: str) -> None:
    """List the tools and call each with arguments that fit its schema."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        async for tool in client.tools():
            result = await client.call_tool(tool.name, example_arguments(tool))
            print(tool.name, "->", result.content)


async def list_tools(address: str) -> None:
    """List the tools; references in their schemas are never fetched."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        print([tool.name async for tool in client.tools()])


async def negotiate(address: str) -> None:
    """Negotiate the version and announce this client's capabilities."""
    async with Client(
        address,
        connect_timeout=PATIENCE,
        sampling=lambda asked: "I am not a model.",
        elicitation=lambda form: None,
        roots=["file:///tmp"],
    ) as client:
        print(client.server_info, client.protocol_version)
        await client.ping()


async def use_everything(address: str) -> None:
    """Call every tool, read every resource, get every prompt."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        async for tool in client.tools():
            await client.call_tool(tool.name, example_arguments(tool))
        async for resource in client.resources():
            await client.read_resource(resource.uri)
        async for prompt in client.prompts():
            await client.get_prompt(prompt.name)


async def call_as_told(address: str) -> None:
    """Make the calls the suite asks for; some arguments are also sent as headers."""
    told = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        print([tool.name async for tool in client.tools()])
        for call in told["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def accept_defaults(address: str) -> None:
    """Answer forms with no values; the client fills in their defaults."""
    async with Client(
        address, protocol=VERSION, connect_timeout=PATIENCE, elicitation=lambda form: {}
    ) as client:
        async for tool in client.tools():
            result = await client.call_tool(tool.name)
            print(tool.name, "->", result.content)


async def confirm(address: str) -> None:
    """Call several tools that ask questions concurrently; each gets its own answers and state."""

    def answer(form: ElicitRequestParams) -> dict[str, Any]:
        print("asked:", form.message)
        return {"confirmed": True}

    async with Client(
        address, protocol=VERSION, connect_timeout=PATIENCE, elicitation=answer
    ) as client:
        tools = [tool.name async for tool in client.tools()]
        await asyncio.gather(*(client.call_tool(name) for name in tools))


async def echo_schema(address: str) -> None:
    """Send a tool's schema back as the client read it."""
    async with Client(address, protocol=VERSION, connect_timeout=PATIENCE) as client:
        schemas = {tool.name: tool.input_schema async for tool in client.tools()}
        arguments = {"schema": schemas["json_schema_2020_12_tool"]}
        await client.call_tool("json_schema_echo", arguments)


# Authorization


async def visit(address: str) -> None:
    """Act as user and browser; the suite's authorization servers approve every login."""
    await asyncio.to_thread(lambda: urllib.request.urlopen(address, timeout=10).close())


def person(**more: Any) -> OAuth:
    """Log in as a user, without storing the login."""
    return OAuth(
        client_name="mcpearl everything client",
        storage=MemoryStorage(),
        open_browser=visit,
        timeout=20,
        **more,
    )


async def use(address: str, auth: Any) -> None:
    """List the tools and call each, authorized."""
    async with Client(address, protocol=VERSION, auth=auth) as client:
        async for tool in client.tools():
            result = await client.call_tool(tool.name, example_arguments(tool))
            print(tool.name, "->", result.content)


async def log_in(address: str) -> None:
    """Log in as the server demands."""
    await use(address, person())


async def be_refused(address: str) -> None:
    """Expect the login to fail, because the server is misconfigured."""
    try:
        await use(address, person())
    except AuthorizationFailed as error:
        print("not logged in:", error)
    else:
        sys.exit("this login should have failed")


async def log_in_by_document(address: str) -> None:
    """Identify the client by a metadata document instead of registering it."""
    document = "https://conformance-test.local/client-metadata.json"
    await use(address, person(client_metadata_url=document))


async def log_in_registered(address: str) -> None:
    """Use a client that was registered in advance."""
    told = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    known = {"client_id": told["client_id"], "client_secret": told["client_secret"]}
    await use(address, person(**known))


async def show_secret(address: str) -> None:
    """Log in as a program with a client secret."""
    told = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    await use(address, ClientCredentials(told["client_id"], client_secret=told["client_secret"]))


async def sign(address: str) -> None:
    """Log in as a program with a private key."""
    told = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    key, algorithm = told["private_key_pem"], told["signing_algorithm"]
    await use(address, ClientCredentials(told["client_id"], private_key=key, algorithm=algorithm))


async def be_vouched_for(address: str) -> None:
    """Log in through a company's identity provider."""
    told = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    auth = EnterpriseManaged(
        client_id=told["client_id"],
        client_secret=told["client_secret"],
        id_token=told["idp_id_token"],
        idp_issuer=told["idp_issuer"],
        idp_client_id=told["idp_client_id"],
    )
    await use(address, auth)


async def show_workload(address: str) -> None:
    """Log in with the platform's workload identity token."""
    told = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    await use(address, WorkloadIdentity(told["valid_jwt"], client_id=told["client_id"]))


def example_arguments(tool: Tool) -> dict[str, Any]:
    """Return example arguments that fit a tool's schema."""
    examples = {"string": "example", "number": 2, "integer": 3, "boolean": True}
    properties = tool.input_schema.get("properties", {})
    return {name: examples.get(schema.get("type")) for name, schema in properties.items()}


SCENARIOS: dict[str, Scenario] = {
    "initialize": connect,
    "tools_call": call_tools,
    "sse-retry": call_tools,
    "elicitation-sep1034-client-defaults": accept_defaults,
    "request-metadata": negotiate,
    "sep-2322-client-request-state": confirm,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_tools,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "auth/basic-cimd": log_in_by_document,
    "auth/pre-registration": log_in_registered,
    "auth/scope-retry-limit": be_refused,
    "auth/resource-mismatch": be_refused,
    "auth/iss-supported-missing": be_refused,
    "auth/iss-wrong-issuer": be_refused,
    "auth/iss-unexpected": be_refused,
    "auth/iss-normalized": be_refused,
    "auth/metadata-issuer-mismatch": be_refused,
    "auth/client-credentials-basic": show_secret,
    "auth/client-credentials-jwt": sign,
    "auth/enterprise-managed-authorization": be_vouched_for,
    "auth/wif-jwt-bearer": show_workload,
}


def main() -> None:
    """Run the scenario the environment names."""
    name = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    scenario = SCENARIOS.get(name, log_in if name.startswith("auth/") else None)
    if scenario is None or len(sys.argv) < 2:
        sys.exit(f"unknown scenario {name!r}, or no URL; known scenarios: {', '.join(SCENARIOS)}")
    asyncio.run(scenario(sys.argv[-1]))


if __name__ == "__main__":
    main()
