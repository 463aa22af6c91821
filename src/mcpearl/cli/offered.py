"""Everything a server offers, read in one go."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.runtime.arguments import did_you_mean
from mcpearl.types.prompts import Prompt
from mcpearl.types.resources import Resource, ResourceTemplate
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.client.client import Client

T = TypeVar("T", Tool, Prompt)
MOST = 10_000  # of each kind; a server may have endless pages


class ServerOffer(Struct):
    """What a server offers."""

    tools: list[Tool] = []
    resources: list[Resource] = []
    templates: list[ResourceTemplate] = []
    prompts: list[Prompt] = []


async def offered(client: "Client", kinds: Sequence[str]) -> ServerOffer:
    """Read the lists of these kinds, of those that the server announced."""
    capabilities = client.server_capabilities
    found = ServerOffer()
    if "tools" in kinds and capabilities.tools is not None:
        found.tools = await _all(client.tools())
    if "resources" in kinds and capabilities.resources is not None:
        found.resources = await _all(client.resources())
    if "templates" in kinds and capabilities.resources is not None:
        found.templates = await _templates(client)
    if "prompts" in kinds and capabilities.prompts is not None:
        found.prompts = await _all(client.prompts())
    return found


async def _templates(client: "Client") -> list[ResourceTemplate]:
    from mcpearl.protocol.errors import McpError
    from mcpearl.types.jsonrpc import METHOD_NOT_FOUND

    try:
        return await _all(client.resource_templates())
    except McpError as error:
        if error.code != METHOD_NOT_FOUND:  # servers without templates often lack the method
            raise
        return []


async def _all(items: AsyncIterator[Any]) -> list[Any]:
    found = []
    async for each in items:
        found.append(each)
        if len(found) == MOST:
            break
    return found


async def find_named(items: AsyncIterator[T], name: str, kind: str) -> T:
    """Return the tool or prompt of a name; if there is none, say which was likely meant.

    Args:
        items: what to look through.
        name: the name.
        kind: what is looked for: `tool` or `prompt`.
    """
    names: list[str] = []
    async for each in items:
        if each.name == name:
            return each
        names.append(each.name)
        if len(names) == MOST:
            break
    listed = f"it has: {', '.join(names[:20])}" if names else f"it has no {kind}s"
    hint = did_you_mean(name, names)
    raise CommandFailed(f"the server has no {kind} `{name}`{hint}", Exit.NOT_FOUND, listed)


def template_variables(template: str) -> list[str]:
    """Return the names of a URI template's variables."""
    from mcpearl.server.registry.uri_template import UriTemplate

    try:
        return list(UriTemplate(template).variables)
    except ValueError as error:
        raise CommandFailed(f"{template} is not a template: {error}", Exit.USAGE) from None


def listed(uri: str, offer: ServerOffer) -> bool:
    """Return whether a server lists a resource, or a template that the URI is one of."""
    from mcpearl.server.registry.uri_template import UriTemplate

    if any(each.uri == uri for each in offer.resources):
        return True
    for each in offer.templates:
        try:
            if UriTemplate(each.uri_template).match(uri) is not None:
                return True
        except ValueError:  # a template that no client can use
            continue
    return False


def summary_of(item: Any) -> str:
    """Return the first paragraph of a description, on one line; else the title or the name."""
    text = item.description or getattr(item, "title", None) or item.name
    first = text.strip().split("\n\n")[0]
    return " ".join(first.split())
