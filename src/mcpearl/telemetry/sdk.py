"""Setting up the SDK of OpenTelemetry as the environment says, where the application has not done it."""

import atexit
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from opentelemetry import metrics, trace

from mcpearl.telemetry.options import is_in_environment

logger = logging.getLogger("mcpearl.telemetry")

_GRPC = "opentelemetry.exporter.otlp.proto.grpc"
_PATIENCE = 3.0  # seconds for what is left to be exported at the end
_lock = threading.Lock()
_done = False
_flushing = 0  # flushes that have not ended


def set_up(service: str) -> None:
    """Set up the SDK if environment variables say where to export to, and it is not set up yet.

    Args:
        service: The name of the service, unless the environment has one.
    """
    global _done
    with _lock:
        if _done or not is_in_environment() or _is_set_up():
            return
        _done = True
        configure = _configurator()
        if configure is None:
            logger.warning(
                "the environment says where OpenTelemetry is to export to, but its SDK is missing: "
                "pip install opentelemetry-sdk opentelemetry-exporter-otlp"
            )
            return
        _complete_environment(service)
        before = _providers()
        try:
            configure()
        except Exception:
            logger.exception("OpenTelemetry could not be set up; nothing is exported")
        made = [each for each in _providers() if each not in before and hasattr(each, "shutdown")]
        if made:
            LastExport(made)


def _configurator() -> Callable[[], None] | None:
    """Return what sets up the SDK from the environment: a distribution's function, or the SDK's own."""
    for found in importlib.metadata.entry_points(group="opentelemetry_configurator"):
        configurator = found.load()()
        return lambda: configurator.configure()
    try:
        module = importlib.import_module("opentelemetry.sdk._configuration")
    except ImportError:
        return None
    return lambda: module._OTelSDKConfigurator().configure()


def _is_set_up() -> bool:
    provider = type(trace.get_tracer_provider()).__module__
    return not provider.startswith("opentelemetry.trace")


def _complete_environment(service: str) -> None:
    """Set the defaults of the specification that the SDK does not set itself."""
    defaults = {
        "OTEL_SERVICE_NAME": service,
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
    }
    if importlib.util.find_spec("opentelemetry.exporter") is None or not _has(_GRPC):
        defaults["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf"
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _providers() -> list[Any]:
    found: list[Any] = [trace.get_tracer_provider(), metrics.get_meter_provider()]
    try:
        logs = importlib.import_module("opentelemetry._logs")
    except ImportError:
        return found
    return [*found, logs.get_logger_provider()]


class LastExport:
    """Shuts providers down when the process ends. It does not wait long for a collector that is away.

    The SDK does this too, but waits for up to half a minute.

    Args:
        providers: Those that were set up here, not the ones of the application.
    """

    def __init__(self, providers: Sequence[Any]) -> None:
        self._providers = providers
        self._wanted = threading.Event()
        # It is started now, because a process that ends cannot start threads.
        self._thread = threading.Thread(target=self._wait, name="mcpearl-last-export", daemon=True)
        self._thread.start()
        for provider in providers:
            atexit.unregister(provider.shutdown)
        atexit.register(self._end)

    def _end(self) -> None:
        if _flushing:
            return  # a server has waited for the collector already
        if self._thread.is_alive():
            self._wanted.set()
            self._thread.join(_PATIENCE)
        else:
            self._shut_down()  # in a process that was forked later

    def _wait(self) -> None:
        self._wanted.wait()
        self._shut_down()

    def _shut_down(self) -> None:
        for provider in self._providers:
            try:
                provider.shutdown()
            except Exception:
                logger.warning("what was left of the telemetry was not exported", exc_info=True)


def left_to_flush() -> Callable[[], None] | None:
    """Return a function that exports the rest within a few seconds; None if the SDK is not set up."""
    providers: tuple[Any, ...] = (trace.get_tracer_provider(), metrics.get_meter_provider())
    flushes = [each.force_flush for each in providers if hasattr(each, "force_flush")]
    return partial(_flush, flushes) if flushes else None


def _flush(flushes: Iterable[Callable[[int], Any]]) -> None:
    global _flushing
    with _lock:
        _flushing += 1
    for flush in flushes:
        try:
            flush(int(_PATIENCE * 1000))
        except Exception:
            logger.warning("what was left of the telemetry could not be exported", exc_info=True)
    with _lock:
        _flushing -= 1
