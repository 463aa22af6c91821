"""Doors: what a lower layer may ask of an upper one, without knowing it.

A layer names the door and says in a protocol of its own what it expects behind it. The root package,
which stands above all of them, says what is there; it is loaded when the door is first used.
"""

import importlib
from collections.abc import Mapping
from typing import Any

_behind: dict[str, str] = {}


def hang(doors: Mapping[str, str]) -> None:
    """Say what is behind doors: by name, `module:attribute`."""
    _behind.update(doors)


def behind(door: str) -> Any:
    """Return what is behind a door, loading it.

    Raises:
        LookupError: Nothing is: the root package was not imported.
    """
    module, _, attribute = _behind[door].partition(":")
    return getattr(importlib.import_module(module), attribute)
