"""The capabilities of several parts as those of one server."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from mcpearl.types.capabilities import (
    TASKS_EXTENSION,
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
)


def joined(own: ServerCapabilities, parts: Sequence[ServerCapabilities]) -> ServerCapabilities:
    """Return what a server and its parts can do together; the server's own settings take precedence.

    Tasks are the outer server's: it runs those of its parts.
    """
    every = (own, *parts)
    changed = ListChangedCapability(list_changed=True)
    resources = [each.resources for each in every if each.resources is not None]
    follows = any(each.subscribe for each in resources)
    return replace(
        own,
        tools=changed if any(each.tools is not None for each in every) else None,
        prompts=changed if any(each.prompts is not None for each in every) else None,
        resources=ResourcesCapability(list_changed=True, subscribe=follows or None)
        if resources
        else None,
        completions=_first(each.completions for each in every),
        logging=_first(each.logging for each in every),
        experimental=_merged([each.experimental for each in every]),
        extensions=_merged([own.extensions, *(_but_tasks(each.extensions) for each in parts)]),
    )


def _but_tasks(extensions: dict[str, Any] | None) -> dict[str, Any]:
    return {k: v for k, v in (extensions or {}).items() if k != TASKS_EXTENSION}


def _first(settings: Any) -> Any:
    return next((each for each in settings if each is not None), None)


def _merged(settings: list[Any]) -> Any:
    merged: dict[str, Any] = {}
    for each in settings:
        merged = {**(each or {}), **merged}
    return merged or None
