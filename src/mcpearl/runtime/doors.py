"""Doors: how a lower layer uses something of an upper layer without importing it.

A layer names the door, and states in a protocol of its own what it expects behind it. The root package,
which is above all layers, says what is there; it is loaded when the door is first used.
"""

from __future__ import annotations

from mcpearl.runtime.loading import load

TYPE_CHECKING = False  # every program loads this: `typing` is left to those that need it
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_behind: dict[str, str] = {}


def hang(doors: Mapping[str, str]) -> None:
    """Set what is behind doors: `module:attribute`, by the name of the door."""
    _behind.update(doors)


def behind(door: str) -> Any:
    """Return what is behind a door, loading it.

    Raises:
        LookupError: There is nothing behind it: the root package was not imported.
    """
    module, _, attribute = _behind[door].partition(":")
    return getattr(load(module), attribute)
