"""Capabilities: which one a method needs, and whether a client or server has it.

A path such as `resources.subscribe` names a capability in the tables, in errors and in the
documentation.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mcpearl.protocol.errors import McpError, MissingClientCapability, ToolError
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.versions import Version
from mcpearl.types.capabilities import TASKS_EXTENSION, ClientCapabilities, ServerCapabilities
from mcpearl.types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND

# The capability that a server must have announced for a client to call the method.
SERVER_NEEDS: dict[str, str] = {
    "tools/list": "tools",
    "tools/call": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources.subscribe",
    "resources/unsubscribe": "resources.subscribe",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "completion/complete": "completions",
    "logging/setLevel": "logging",
    "tasks/get": "tasks",
    "tasks/result": "tasks",
    "tasks/update": "tasks",
    "tasks/list": "tasks.list",
    "tasks/cancel": "tasks.cancel",
}

# The capability that a client must have declared for a server to call the method.
CLIENT_NEEDS: dict[str, str] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "tasks/get": "tasks",
    "tasks/result": "tasks",
    "tasks/list": "tasks.list",
    "tasks/cancel": "tasks.cancel",
}


def has(capabilities: Struct, path: str) -> bool:
    """Return whether a capability is present; `False` counts as absent."""
    value: Any = capabilities
    for name in _names(path):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        if value is None or value is False:
            return False
    return True


def _names(path: str) -> list[str]:
    # The name of an extension contains dots.
    return path.split(".", 1) if path.startswith("extensions.") else path.split(".")


def absent(method: str, capability: str) -> McpError:
    """Return the error for a method whose capability the server does not have."""
    return McpError(
        METHOD_NOT_FOUND,
        f"Method not found: `{method}` needs the capability `{capability}`, "
        "which this server does not have",
        {"method": method, "capability": capability},
    )


STATELESS = ClientCapabilities()
"""The unknown capabilities of a legacy client at an endpoint without sessions."""


def require(capabilities: ClientCapabilities, path: str) -> None:
    """Raise `MissingClientCapability` unless the client declared the capability.

    An empty `elicitation` means form mode, as before there were modes.
    """
    if _declares(capabilities, path):
        return
    if capabilities is STATELESS:
        raise ToolError(
            f"The client cannot be asked for {path.partition('.')[0]}: the endpoint is stateless, so its "
            "answer would not find this call. Serve without `stateless`, or use a client of 2026-07-28"
        )
    required: dict[str, Any] = {}
    for name in reversed(_names(path)):
        required = {name: required}
    raise MissingClientCapability(path, required)


def _declares(capabilities: ClientCapabilities, path: str) -> bool:
    if path != "elicitation.form":
        return has(capabilities, path)
    elicitation = capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def check_mode(capabilities: ClientCapabilities, mode: str | None) -> None:
    """Raise `McpError` for an elicitation in a mode that the client did not declare."""
    path = f"elicitation.{mode or 'form'}"
    if not _declares(capabilities, path):
        raise McpError(
            INVALID_PARAMS,
            f"Invalid params for `elicitation/create`: it needs the capability `{path}`, "
            "which this client did not declare",
            {"method": "elicitation/create", "capability": path},
        )


def announce(
    capabilities: ServerCapabilities,
    version: Version,
    client: ClientCapabilities,
    *,
    identified: bool = True,
) -> ServerCapabilities:
    """Return the capabilities to announce in `initialize`: the version's, and the shared extensions.

    The extension for tasks is not among them, since 2025-11-25 has tasks of its own. A client that
    cannot be told from others has no list of tasks.
    """
    if capabilities.tasks is not None and not identified:
        capabilities = replace(capabilities, tasks=replace(capabilities.tasks, list=None))
    offered = capabilities.extensions
    if offered:
        shared = {*(client.extensions or ())} - {TASKS_EXTENSION}
        kept = {name: settings for name, settings in offered.items() if name in shared}
        capabilities = replace(capabilities, extensions=kept or None)
    return narrow(capabilities, version.name)
