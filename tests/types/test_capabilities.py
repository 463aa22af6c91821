"""Capabilities: an empty object is a yes."""

from mcpearl.types import (
    ClientCapabilities,
    ElicitationCapability,
    ListChangedCapability,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    decode,
    encode,
)


def test_an_empty_capability_is_sent() -> None:
    server = ServerCapabilities(tools=ListChangedCapability(), logging={})
    assert encode(server) == b'{"logging":{},"tools":{}}'
    client = ClientCapabilities(roots=RootsCapability(), sampling=SamplingCapability())
    assert encode(client) == b'{"roots":{},"sampling":{}}'


def test_an_empty_capability_is_not_an_absent_one() -> None:
    client = decode(ClientCapabilities, b'{"elicitation":{}}')
    assert client.elicitation == ElicitationCapability()
    assert client.sampling is None


def test_extensions_and_experiments_are_kept_as_they_are() -> None:
    wire = b'{"experimental":{"a":{"b":[1]}},"extensions":{"io.example/x":{"deep":{"y":null}}}}'
    assert encode(decode(ServerCapabilities, wire)) == wire


def test_tasks_of_both_sides() -> None:
    server = decode(ServerCapabilities, b'{"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}')
    assert server.tasks is not None
    assert server.tasks.requests is not None
    assert server.tasks.requests.tools is not None
    assert server.tasks.requests.tools.call == {}
    wire = b'{"tasks":{"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}}'
    assert encode(decode(ClientCapabilities, wire)) == wire
