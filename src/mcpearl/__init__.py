"""mcpearl: the Model Context Protocol for Python, as client and as server.

Names are imported on first use, so that a program loads only the side it needs.
"""

from __future__ import annotations

from mcpearl._version import __version__
from mcpearl.runtime import doors
from mcpearl.runtime.loading import load

TYPE_CHECKING = False  # `typing` is loaded with the first name, while no garbage is collected
if TYPE_CHECKING:
    from typing import Any

    from mcpearl.client.client import Client
    from mcpearl.client.extensions import ClientExtension
    from mcpearl.client.pool import Pool
    from mcpearl.client.reconnect import Reconnect
    from mcpearl.client.sampling.anthropic import AnthropicSampling
    from mcpearl.client.sampling.ollama import OllamaSampling
    from mcpearl.client.sampling.openai import OpenAISampling
    from mcpearl.client.tasks.handle import ClientTask
    from mcpearl.client.tool_result import TypedToolResult
    from mcpearl.gateway.bridge import bridge
    from mcpearl.gateway.gateway import Gateway
    from mcpearl.gateway.settings import Access, UpstreamSettings
    from mcpearl.host.host import Host
    from mcpearl.net.tls import Tls
    from mcpearl.protocol.errors import (
        AuthorizationFailed,
        CapabilityMissing,
        ConnectionLost,
        InvalidResult,
        LimitReached,
        McpearlError,
        McpError,
        MissingClientCapability,
        Overloaded,
        RateLimited,
        RequestTimeout,
        ResourceNotFound,
        TaskCancelled,
        TaskTimeout,
        ToolError,
        UrlElicitationRequired,
    )
    from mcpearl.protocol.lifecycle import Phase
    from mcpearl.protocol.limits import Limits
    from mcpearl.receipts.receipts import Receipts
    from mcpearl.runtime.breaker import Breaker
    from mcpearl.runtime.bulkhead import Bulkhead
    from mcpearl.runtime.child import Child
    from mcpearl.runtime.isolation.profile import Files, Isolate
    from mcpearl.runtime.liveness import Keepalive
    from mcpearl.runtime.names import Names
    from mcpearl.runtime.observer import Observer
    from mcpearl.runtime.rate import RateLimit
    from mcpearl.runtime.supervisor import Supervisor
    from mcpearl.server.asking import Elicited
    from mcpearl.server.composition.mount import Mount
    from mcpearl.server.composition.rewrite import Offered, Rewrite
    from mcpearl.server.context import Context
    from mcpearl.server.extensions import ServerExtension
    from mcpearl.server.handler import Handler
    from mcpearl.server.registry.dependencies import Depends
    from mcpearl.server.registry.returns import (
        AssistantMessage,
        Audio,
        File,
        Image,
        Media,
        Message,
        ToolResult,
        UserMessage,
    )
    from mcpearl.server.server import Server
    from mcpearl.server.serving.wire import Stdio
    from mcpearl.server.serving.wires import ConsoleOptions, Http, Tcp, Unix, WebSocket
    from mcpearl.server.session import Session
    from mcpearl.server.tasks.options import Tasks
    from mcpearl.server.throttle import Shedding
    from mcpearl.sync.client import SyncClient
    from mcpearl.sync.host import SyncHost
    from mcpearl.sync.task import SyncClientTask
    from mcpearl.telemetry.options import Telemetry
    from mcpearl.transports.http_server.pages import HttpRequest, HttpResponse
    from mcpearl.transports.transport import Receiver, Transport
    from mcpearl.types.base import Icon

_HOMES = {
    "Access": "gateway.settings",
    "AnthropicSampling": "client.sampling.anthropic",
    "AssistantMessage": "server.registry.returns",
    "Audio": "server.registry.returns",
    "AuthorizationFailed": "protocol.errors",
    "Breaker": "runtime.breaker",
    "Bulkhead": "runtime.bulkhead",
    "CapabilityMissing": "protocol.errors",
    "Child": "runtime.child",
    "Client": "client.client",
    "ClientExtension": "client.extensions",
    "ClientTask": "client.tasks.handle",
    "ConnectionLost": "protocol.errors",
    "ConsoleOptions": "server.serving.wires",
    "Context": "server.context",
    "Depends": "server.registry.dependencies",
    "Elicited": "server.asking",
    "File": "server.registry.returns",
    "Files": "runtime.isolation.profile",
    "Gateway": "gateway.gateway",
    "Handler": "server.handler",
    "Host": "host.host",
    "Http": "server.serving.wires",
    "HttpRequest": "transports.http_server.pages",
    "HttpResponse": "transports.http_server.pages",
    "Icon": "types.base",
    "Image": "server.registry.returns",
    "InvalidResult": "protocol.errors",
    "Isolate": "runtime.isolation.profile",
    "Keepalive": "runtime.liveness",
    "LimitReached": "protocol.errors",
    "Limits": "protocol.limits",
    "McpError": "protocol.errors",
    "McpearlError": "protocol.errors",
    "Media": "server.registry.returns",
    "Message": "server.registry.returns",
    "MissingClientCapability": "protocol.errors",
    "Mount": "server.composition.mount",
    "Names": "runtime.names",
    "Observer": "runtime.observer",
    "Offered": "server.composition.rewrite",
    "OllamaSampling": "client.sampling.ollama",
    "OpenAISampling": "client.sampling.openai",
    "Overloaded": "protocol.errors",
    "Phase": "protocol.lifecycle",
    "Pool": "client.pool",
    "RateLimit": "runtime.rate",
    "RateLimited": "protocol.errors",
    "Receipts": "receipts.receipts",
    "Receiver": "transports.transport",
    "Reconnect": "client.reconnect",
    "RequestTimeout": "protocol.errors",
    "ResourceNotFound": "protocol.errors",
    "Rewrite": "server.composition.rewrite",
    "Server": "server.server",
    "ServerExtension": "server.extensions",
    "Session": "server.session",
    "Shedding": "server.throttle",
    "Stdio": "server.serving.wire",
    "Supervisor": "runtime.supervisor",
    "Telemetry": "telemetry.options",
    "TaskCancelled": "protocol.errors",
    "TaskTimeout": "protocol.errors",
    "SyncClient": "sync.client",
    "SyncClientTask": "sync.task",
    "SyncHost": "sync.host",
    "Tasks": "server.tasks.options",
    "Tcp": "server.serving.wires",
    "Tls": "net.tls",
    "ToolError": "protocol.errors",
    "ToolResult": "server.registry.returns",
    "Transport": "transports.transport",
    "TypedToolResult": "client.tool_result",
    "Unix": "server.serving.wires",
    "UpstreamSettings": "gateway.settings",
    "UrlElicitationRequired": "protocol.errors",
    "UserMessage": "server.registry.returns",
    "WebSocket": "server.serving.wires",
    "bridge": "gateway.bridge",
}

__all__ = [
    "Access",
    "AnthropicSampling",
    "AssistantMessage",
    "Audio",
    "AuthorizationFailed",
    "Breaker",
    "Bulkhead",
    "CapabilityMissing",
    "Child",
    "Client",
    "ClientExtension",
    "ClientTask",
    "ConnectionLost",
    "ConsoleOptions",
    "Context",
    "Depends",
    "Elicited",
    "File",
    "Files",
    "Gateway",
    "Handler",
    "Host",
    "Http",
    "HttpRequest",
    "HttpResponse",
    "Icon",
    "Image",
    "InvalidResult",
    "Isolate",
    "Keepalive",
    "LimitReached",
    "Limits",
    "McpError",
    "McpearlError",
    "Media",
    "Message",
    "MissingClientCapability",
    "Mount",
    "Names",
    "Observer",
    "Offered",
    "OllamaSampling",
    "OpenAISampling",
    "Overloaded",
    "Phase",
    "Pool",
    "RateLimit",
    "RateLimited",
    "Receipts",
    "Receiver",
    "Reconnect",
    "RequestTimeout",
    "ResourceNotFound",
    "Rewrite",
    "Server",
    "ServerExtension",
    "Session",
    "Shedding",
    "Stdio",
    "Supervisor",
    "SyncClient",
    "SyncClientTask",
    "SyncHost",
    "TaskCancelled",
    "TaskTimeout",
    "Tasks",
    "Tcp",
    "Telemetry",
    "Tls",
    "ToolError",
    "ToolResult",
    "Transport",
    "TypedToolResult",
    "Unix",
    "UpstreamSettings",
    "UrlElicitationRequired",
    "UserMessage",
    "WebSocket",
    "__version__",
    "bridge",
]


# What lower layers have upper ones do.
doors.hang(
    {
        "server.mount": "mcpearl.gateway.upstream_part:upstream_part",
        "client.servers": "mcpearl.gateway.joint_server:joint_server",
        "server.console": "mcpearl.console.mounting:site_of",
    }
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mcpearl' has no attribute {name!r}")
    value = getattr(load(f"mcpearl.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
