"""mcpearl: the Model Context Protocol for Python, as client and as server.

Names are imported on first use, so that a program loads only the side it needs.
"""

import gc
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mcpearl._version import __version__

if TYPE_CHECKING:
    from mcpearl.client.client import Client
    from mcpearl.client.reconnect import Reconnect
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
        RequestTimeout,
        ResourceNotFound,
        ToolError,
        UrlElicitationRequired,
    )
    from mcpearl.protocol.lifecycle import Phase
    from mcpearl.protocol.limits import Limits
    from mcpearl.runtime.child import Child
    from mcpearl.runtime.liveness import Keepalive
    from mcpearl.runtime.observer import Observer
    from mcpearl.runtime.supervisor import Supervisor
    from mcpearl.server.context import Context
    from mcpearl.server.extensions import ServerExtension
    from mcpearl.server.handler import Handler
    from mcpearl.server.registry.forms import Elicited
    from mcpearl.server.registry.results import Media
    from mcpearl.server.server import Server
    from mcpearl.server.serving.wires import Http, Stdio, Tcp, Unix, WebSocket
    from mcpearl.server.tasks.options import Tasks
    from mcpearl.transports.transport import Receiver, Transport

_HOMES = {
    "AuthorizationFailed": "protocol.errors",
    "CapabilityMissing": "protocol.errors",
    "Child": "runtime.child",
    "Client": "client.client",
    "ConnectionLost": "protocol.errors",
    "Context": "server.context",
    "Elicited": "server.registry.forms",
    "Handler": "server.handler",
    "Http": "server.serving.wires",
    "InvalidResult": "protocol.errors",
    "Keepalive": "runtime.liveness",
    "LimitReached": "protocol.errors",
    "Limits": "protocol.limits",
    "McpError": "protocol.errors",
    "McpearlError": "protocol.errors",
    "Media": "server.registry.results",
    "MissingClientCapability": "protocol.errors",
    "Observer": "runtime.observer",
    "Phase": "protocol.lifecycle",
    "Receiver": "transports.transport",
    "Reconnect": "client.reconnect",
    "RequestTimeout": "protocol.errors",
    "ResourceNotFound": "protocol.errors",
    "Server": "server.server",
    "ServerExtension": "server.extensions",
    "Stdio": "server.serving.wires",
    "Supervisor": "runtime.supervisor",
    "Tasks": "server.tasks.options",
    "Tcp": "server.serving.wires",
    "Tls": "net.tls",
    "ToolError": "protocol.errors",
    "Transport": "transports.transport",
    "Unix": "server.serving.wires",
    "UrlElicitationRequired": "protocol.errors",
    "WebSocket": "server.serving.wires",
}

__all__ = [
    "AuthorizationFailed",
    "CapabilityMissing",
    "Child",
    "Client",
    "ConnectionLost",
    "Context",
    "Elicited",
    "Handler",
    "Http",
    "InvalidResult",
    "Keepalive",
    "LimitReached",
    "Limits",
    "McpError",
    "McpearlError",
    "Media",
    "MissingClientCapability",
    "Observer",
    "Phase",
    "Receiver",
    "Reconnect",
    "RequestTimeout",
    "ResourceNotFound",
    "Server",
    "ServerExtension",
    "Stdio",
    "Supervisor",
    "Tasks",
    "Tcp",
    "Tls",
    "ToolError",
    "Transport",
    "Unix",
    "UrlElicitationRequired",
    "WebSocket",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mcpearl' has no attribute {name!r}")
    value = getattr(_load(f"mcpearl.{home}"), name)
    globals()[name] = value
    return value


def _load(module: str) -> ModuleType:
    """Import a module without the collector running: imports make much, and no garbage."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if collecting:
            gc.enable()


def __dir__() -> list[str]:
    return __all__
