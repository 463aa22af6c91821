"""All targets, by name. Each is loaded by itself: only what it reads with is then instrumented."""

from importlib import import_module

from tests.fuzz.target import Target

# name: the module, and what the target is called there
_PLACES = {
    "framing": ("framing", "TARGET"),
    "sse": ("sse", "TARGET"),
    "ends": ("ends", "TARGET"),
    "uri-templates": ("uri_templates", "TARGET"),
    "sealed-state": ("sealed_state", "TARGET"),
    "jose": ("jose", "TARGET"),
    "challenges": ("challenges", "TARGET"),
    "given-schemas": ("given_schemas", "TARGET"),
    "configurations": ("configurations", "TARGET"),
    "host-files": ("host_files", "TARGET"),
    "websocket": ("websocket", "TARGET"),
    "http-server": ("http_server", "TARGET"),
    "http1-client": ("http_client", "HTTP1"),
    "http2-client": ("http_client", "HTTP2"),
}
NAMES = tuple(_PLACES)


def load(name: str) -> Target:
    """Return a target."""
    module, attribute = _PLACES[name]
    target: Target = getattr(import_module(f"tests.fuzz.targets.{module}"), attribute)
    assert target.name == name
    return target
