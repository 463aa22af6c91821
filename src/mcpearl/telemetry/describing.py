"""What spans of calls and of questions have in common: attributes, errors, and reading `_meta`."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Status, StatusCode

from mcpearl.protocol.errors import McpError
from mcpearl.runtime.observer import Outcome
from mcpearl.telemetry.durations import MEDIA, Attributes
from mcpearl.telemetry.options import Telemetry

_LONGEST = 8192  # characters of a member of `_meta` that is read
LONGEST_ID = 256
"""Characters of an id that a client chose."""


class MetaGetter(Getter[Mapping[str, Any]]):
    """Reads the context of a trace from the `_meta` of a request, whatever a client puts there."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        """Return the value of a key, if it is text of at most 8,192 characters."""
        found = carrier.get(key)
        return [found] if isinstance(found, str) and len(found) <= _LONGEST else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        """Return the keys."""
        return list(carrier)


GETTER = MetaGetter()
"""Reads the `_meta` of every request."""


def describe_wire(found: Attributes, version: str, medium: str) -> None:
    """Add how a request travels: its wire, and the version of the protocol."""
    found |= MEDIA.get(medium, {})
    if version:
        found["mcp.protocol.version"] = version


def error_type(outcome: Outcome, answer: Any) -> str | None:
    """Return the `error.type` of a call; None if it succeeded."""
    if outcome == "result":
        return None
    if outcome != "error":
        return outcome
    return str(answer.code) if isinstance(answer, McpError) else type(answer).__name__


def failure(answer: Any, telemetry: Telemetry) -> Status:
    """Return the status of an error. Its message may repeat arguments and URIs."""
    message = getattr(answer, "message", None) if telemetry.contents else None
    return Status(StatusCode.ERROR, message)
