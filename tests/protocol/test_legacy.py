"""The handshake of the legacy era, from both ends."""

import json
from types import SimpleNamespace

import pytest

from mcpearl.protocol.errors import InvalidResult
from mcpearl.protocol.events import Answer, Call, Opened
from mcpearl.protocol.lifecycle import Phase
from mcpearl.protocol.versions import LEGACY_VERSIONS, VERSIONS
from mcpearl.types import (
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    PaginatedRequestParams,
    ServerCapabilities,
)
from mcpearl.types.initialize import InitializeResult

from .ends import (
    EVERYTHING,
    INITIALIZED,
    SERVER,
    a_client,
    a_server,
    a_session,
    error_of,
    initialize,
    request,
    said,
)


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_known_version_is_agreed(version: str) -> None:
    end = a_server()
    result = said(end.receive(initialize(version)))["result"]
    assert result["protocolVersion"] == version
    assert result["serverInfo"] == {"name": "weather", "version": "1.0"}
    assert result["instructions"] == "Forecasts by city."
    assert end.caller is not None
    assert end.caller.version.name == version
    assert end.caller.client == Implementation(name="host", version="2.0")


@pytest.mark.parametrize("version", ["2026-07-28", "2030-01-01", "1.0", ""])
def test_any_other_version_is_answered_with_the_newest_legacy_one(version: str) -> None:
    assert said(a_server().receive(initialize(version)))["result"]["protocolVersion"] == (
        "2025-11-25"
    )


def test_a_server_of_fewer_versions_answers_with_its_newest() -> None:
    end = a_server(versions=("2025-06-18", "2025-03-26"))
    assert said(end.receive(initialize("2025-11-25")))["result"]["protocolVersion"] == "2025-06-18"


def test_a_modern_server_names_its_versions_to_a_legacy_client() -> None:
    end = a_server(versions=("2026-07-28",))
    error = error_of(end.receive(initialize()), 0)
    assert error["code"] == -32600
    assert "2026-07-28" in error["message"]
    assert end.lifecycle.phase is Phase.CONNECTING


def test_the_result_has_only_what_the_version_knows() -> None:
    old = said(a_server().receive(initialize("2024-11-05")))["result"]
    assert old["capabilities"] == {
        "logging": {},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
    }
    assert "resultType" not in old
    assert "_meta" not in old
    newer = said(a_server().receive(initialize("2025-03-26")))["result"]
    assert newer["capabilities"]["completions"] == {}


def test_the_principal_of_the_connection_is_the_callers() -> None:
    alice = SimpleNamespace(subject="alice")
    end = a_session(principal=alice)
    call = end.receive(request(1, "tools/list"))
    assert isinstance(call, Call)
    assert call.caller.principal is alice
    assert call.caller is end.caller


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": "2025-11-25"},
        {"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "a", "version": "b"}},
        {"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a"}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": None},
    ],
)
def test_an_initialize_that_says_too_little_is_refused(params: object) -> None:
    end = a_server()
    assert error_of(end.receive(request(1, "initialize", params)), 1)["code"] == -32602
    assert end.caller is None


def test_capabilities_of_the_client_are_kept() -> None:
    end = a_server()
    end.receive(initialize(elicitation={}, roots={"listChanged": True}, somethingNew={"x": 1}))
    assert end.caller is not None
    assert end.caller.capabilities.elicitation == ElicitationCapability()
    assert end.caller.capabilities.sampling is None


# The client's side


def initialized(version: str) -> InitializeResult:
    return InitializeResult(protocol_version=version, capabilities=EVERYTHING, server_info=SERVER)


def test_a_client_introduces_itself() -> None:
    end = a_client()
    entry, message = end.initialize("waiter", 0.0, 10.0)
    said_first = json.loads(message)
    assert said_first["id"] == entry.id
    assert said_first["method"] == "initialize"
    assert said_first["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "roots": {"listChanged": True},
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
        },
        "clientInfo": {"name": "host", "version": "2.0"},
    }


def test_what_a_client_proposes_is_in_the_words_of_the_version() -> None:
    _, message = a_client().initialize(None, 0.0, 10.0, VERSIONS["2024-11-05"])
    params = json.loads(message)["params"]
    assert params["protocolVersion"] == "2024-11-05"
    assert params["capabilities"] == {"roots": {"listChanged": True}, "sampling": {}}


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_client_takes_any_version_it_speaks(version: str) -> None:
    end = a_client()
    end.initialize(None, 0.0, 10.0)
    assert json.loads(end.initialized(initialized(version))) == {
        "jsonrpc": "2.0",
        "method": "notifications/initialized",
    }
    assert end.ready
    assert end.version.name == version


@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", ""])
def test_a_client_does_not_go_on_in_a_version_it_does_not_speak(version: str) -> None:
    end = a_client()
    end.initialize(None, 0.0, 10.0)
    with pytest.raises(InvalidResult, match="does not speak"):
        end.initialized(initialized(version))
    assert end.lifecycle.phase is Phase.INITIALIZING


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_both_ends_meet(version: str) -> None:
    client, server = a_client(), a_server()
    _, message = client.initialize(None, 0.0, 10.0, VERSIONS[version])
    opened = server.receive(message)
    assert isinstance(opened, Opened)
    event = client.receive(opened.message)
    assert isinstance(event, Answer)
    assert event.result is not None
    result = client.decode_result("initialize", InitializeResult, event.result)
    assert isinstance(result, InitializeResult)
    server.receive(client.initialized(result))
    assert client.ready
    assert server.lifecycle.phase is Phase.READY
    entry, message = client.request("tools/list", PaginatedRequestParams(), None, 0.0, 60.0)
    call = server.receive(message)
    assert isinstance(call, Call)
    assert call.id == entry.id
    assert call.caller.version.name == version


def test_a_client_that_can_do_nothing_says_so() -> None:
    end = a_client(ClientCapabilities())
    _, message = end.initialize(None, 0.0, 10.0)
    assert json.loads(message)["params"]["capabilities"] == {}


def test_a_server_that_offers_nothing_says_so() -> None:
    end = a_server(ServerCapabilities())
    assert said(end.receive(initialize()))["result"]["capabilities"] == {}
    end.receive(INITIALIZED)
    assert end.lifecycle.phase is Phase.READY
