"""Ends to talk to, and the messages one says to them."""

import json
from typing import Any

from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.events import Call, Opened, Ready, Reply
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.modern import Stamp
from mcpearl.protocol.offer import Offer
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.protocol.versions import SUPPORTED, VERSIONS
from mcpearl.types import (
    CallToolResult,
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    ListChangedCapability,
    ResourcesCapability,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    TextContent,
)
from mcpearl.types.base import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY
from mcpearl.types.initialize import InitializeResult

SERVER = Implementation(name="weather", version="1.0")
CLIENT = Implementation(name="host", version="2.0")
EVERYTHING = ServerCapabilities(
    tools=ListChangedCapability(list_changed=True),
    prompts=ListChangedCapability(list_changed=True),
    resources=ResourcesCapability(subscribe=True, list_changed=True),
    completions={},
    logging={},
)
CLIENT_CAN = ClientCapabilities(
    roots=RootsCapability(list_changed=True),
    sampling=SamplingCapability(),
    elicitation=ElicitationCapability(form={}, url={}),
)
META = {
    PROTOCOL_VERSION_KEY: "2026-07-28",
    CLIENT_INFO_KEY: {"name": "host", "version": "2.0"},
    CLIENT_CAPABILITIES_KEY: {},
}


def request(id: Any, method: str, params: Any = None, **members: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": id, "method": method, **members}
    return json.dumps(message if params is None else message | {"params": params}).encode()


def notification(method: str, params: Any = None) -> bytes:
    message = {"jsonrpc": "2.0", "method": method}
    return json.dumps(message if params is None else message | {"params": params}).encode()


def answer(id: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


def batch(*messages: bytes) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def initialize(version: str = "2025-11-25", id: Any = 0, **capabilities: Any) -> bytes:
    return request(
        id,
        "initialize",
        {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "host", "version": "2.0"},
        },
    )


INITIALIZED = notification("notifications/initialized")


def call_tool(id: Any = 1, name: str = "forecast", **meta: Any) -> bytes:
    params: dict[str, Any] = {"name": name, "arguments": {"city": "Oslo"}}
    return request(id, "tools/call", params | ({"_meta": meta} if meta else {}))


def modern(id: Any, method: str, params: dict[str, Any] | None = None, **meta: Any) -> bytes:
    """A request of 2026-07-28; `meta` replaces members, and None takes one out."""
    whole = {key: value for key, value in (META | meta).items() if value is not None}
    return request(id, method, (params or {}) | {"_meta": whole})


RESULT = CallToolResult(content=[TextContent(text="sunny")])


def a_server(
    capabilities: ServerCapabilities = EVERYTHING,
    versions: tuple[str, ...] = SUPPORTED,
    limits: Limits | None = None,
    principal: Any = None,
) -> ServerEnd:
    offer = Offer(SERVER, capabilities, "Forecasts by city.", versions)
    return ServerEnd(offer, Stamp(SERVER), limits or Limits(), principal)


def a_session(version: str = "2025-11-25", **kwargs: Any) -> ServerEnd:
    end = a_server(**kwargs)
    assert isinstance(end.receive(initialize(version)), Opened)
    assert isinstance(end.receive(INITIALIZED), Ready)
    return end


def a_client(
    capabilities: ClientCapabilities = CLIENT_CAN, limits: Limits | None = None
) -> ClientEnd:
    return ClientEnd(CLIENT, capabilities, limits or Limits())


def a_client_session(version: str = "2025-11-25", **kwargs: Any) -> ClientEnd:
    end = a_client(**kwargs)
    entry, _ = end.initialize(None, 0.0, 10.0)
    end.receive(answer(entry.id, {}))
    end.initialized(
        InitializeResult(
            protocol_version=version, capabilities=ServerCapabilities(), server_info=SERVER
        )
    )
    return end


def a_modern_client(**kwargs: Any) -> ClientEnd:
    end = a_client(**kwargs)
    end.speak_modern(VERSIONS["2026-07-28"])
    end.connected()
    return end


def said(event: Any) -> Any:
    """What an event that sends something back says."""
    assert isinstance(event, Reply | Opened), event
    return json.loads(event.message)


def error_of(event: Any, id: Any) -> dict[str, Any]:
    """The error an event sends back under `id`."""
    message = said(event)
    assert message["jsonrpc"] == "2.0"
    assert message["id"] == id
    assert type(message["id"]) is type(id)
    assert "result" not in message
    return message["error"]


def assert_works(end: ServerEnd) -> None:
    """A server's end in a session answers a ping and a call as if nothing had happened."""
    assert said(end.receive(request("still there", "ping"))) == {
        "jsonrpc": "2.0",
        "id": "still there",
        "result": {},
    }
    call = end.receive(call_tool("after all"))
    assert isinstance(call, Call)
    sent = end.result(call, RESULT)
    assert sent is not None
    assert json.loads(sent)["result"]["content"] == [{"type": "text", "text": "sunny"}]


def assert_client_works(end: ClientEnd) -> None:
    """A client's end in a session answers a ping and hears the answer to a request."""
    assert said(end.receive(request("still there", "ping")))["result"] == {}
    entry, _ = end.request("tools/list", _no_params(), None, 0.0, 60.0)
    event = end.receive(answer(entry.id, {"tools": []}))
    assert event.entry is entry  # type: ignore[union-attr]


def _no_params() -> Any:
    from mcpearl.types import PaginatedRequestParams

    return PaginatedRequestParams()
