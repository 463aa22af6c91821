"""Reads `3.0` as an integer, as JSON Schema does, in arguments that the decoder refused."""

from __future__ import annotations

from typing import Any

import msgspec

from mcpearl.types.base import read_float

__all__ = ["with_whole_numbers"]

# The largest numbers that are passed on to functions as integers.
_LARGEST = 2.0**63


def with_whole_numbers(raw: Any) -> bytes | None:
    """Write JSON again with `3.0` and `3e0` as `3`; return None if it has no such number.

    Costs one more reading of the arguments, only for those that the decoder refused.
    """
    found = False

    def read(text: str) -> int | float:
        nonlocal found
        value = read_float(text)
        if not value.is_integer() or abs(value) >= _LARGEST:
            return value
        found = True
        return int(value)

    value = msgspec.json.Decoder(float_hook=read).decode(raw)
    return msgspec.json.encode(value) if found else None
