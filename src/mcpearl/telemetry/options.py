"""Settings of what is exported with OpenTelemetry. Reading them does not load it."""

import logging
import os
import sys

from msgspec import Struct

logger = logging.getLogger("mcpearl.telemetry")

_SETTINGS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)


class Telemetry(Struct, frozen=True, kw_only=True):
    """What a server or client exports with OpenTelemetry, by the MCP semantic conventions.

    >>> app = Server("weather", telemetry=Telemetry(contents=True))
    """

    traces: bool = True
    """A span for each call, whose parent is in the `_meta` of the request."""
    metrics: bool = True
    """How long calls and sessions take."""
    contents: bool = False
    """Whether spans have the arguments and results of tools, URIs of resources, and ids of sessions,
    which may be secrets."""


def chosen(telemetry: Telemetry | bool | None) -> Telemetry | None:
    """Return what to export; None for nothing.

    Args:
        telemetry: What the application asked for. With None, everything is exported if the SDK of
            OpenTelemetry is loaded or the environment says where to export to.
    """
    if telemetry is False:
        return None
    if telemetry is None and not (is_in_environment() or "opentelemetry.sdk" in sys.modules):
        return None
    from importlib.util import find_spec

    if find_spec("opentelemetry") is None:
        advice = "install the extra: pip install 'mcpearl[otel]' opentelemetry-sdk"
        if telemetry is not None:
            raise ImportError(f"`telemetry` needs OpenTelemetry; {advice}")
        logger.warning(
            "the environment has settings of OpenTelemetry, which is missing; %s", advice
        )
        return None
    return telemetry if isinstance(telemetry, Telemetry) else Telemetry()


def is_in_environment() -> bool:
    """Whether environment variables say where OpenTelemetry is to export to."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return any(os.environ.get(name, "none") not in ("none", "") for name in _SETTINGS)
