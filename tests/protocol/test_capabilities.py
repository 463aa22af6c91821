"""What each side says it can do, and what follows from it."""

from typing import Any

import pytest

from mcpearl.protocol.capabilities import (
    CLIENT_NEEDS,
    SERVER_NEEDS,
    absent,
    announce,
    has,
    require,
)
from mcpearl.protocol.errors import MissingClientCapability
from mcpearl.protocol.events import Call
from mcpearl.protocol.offer import Offer
from mcpearl.protocol.versions import VERSIONS
from mcpearl.types import (
    ClientCapabilities,
    ElicitationCapability,
    ListChangedCapability,
    ResourcesCapability,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    TasksCapability,
)
from mcpearl.types.base import encode
from mcpearl.types.methods import REQUESTS

from .ends import SERVER, a_client_session, a_session, error_of, modern, request

TASKS = "io.modelcontextprotocol/tasks"
UI = "io.modelcontextprotocol/ui"


def told(capabilities: ServerCapabilities, version: str, **client: Any) -> bytes:
    return encode(announce(capabilities, VERSIONS[version], ClientCapabilities(**client)))


# Paths


@pytest.mark.parametrize(
    ("capabilities", "path", "there"),
    [
        (ServerCapabilities(tools=ListChangedCapability()), "tools", True),
        (ServerCapabilities(), "tools", False),
        (ServerCapabilities(logging={}), "logging", True),
        (ServerCapabilities(resources=ResourcesCapability()), "resources.subscribe", False),
        (
            ServerCapabilities(resources=ResourcesCapability(subscribe=False)),
            "resources.subscribe",
            False,
        ),
        (
            ServerCapabilities(resources=ResourcesCapability(subscribe=True)),
            "resources.subscribe",
            True,
        ),
        (ClientCapabilities(sampling=SamplingCapability(tools={})), "sampling.tools", True),
        (ClientCapabilities(sampling=SamplingCapability()), "sampling.tools", False),
        (
            ClientCapabilities(tasks=TasksCapability(requests={"sampling": {"createMessage": {}}})),
            "tasks.requests.sampling.createMessage",
            True,
        ),
        (ClientCapabilities(extensions={UI: {}}), f"extensions.{UI}", True),
        (ClientCapabilities(extensions={UI: {}}), f"extensions.{TASKS}", False),
        (ClientCapabilities(), "no.such.thing", False),
    ],
)
def test_a_path_names_a_capability(capabilities: Any, path: str, there: bool) -> None:
    assert has(capabilities, path) is there
    if isinstance(capabilities, ServerCapabilities):
        assert Offer(SERVER, capabilities).has(path) is there


def test_what_methods_need_can_be_offered() -> None:
    everything = ServerCapabilities(
        tools=ListChangedCapability(),
        prompts=ListChangedCapability(),
        resources=ResourcesCapability(subscribe=True),
        completions={},
        logging={},
        tasks=TasksCapability(list={}, cancel={}),
    )
    offer = Offer(SERVER, everything)
    assert all(offer.has(path) for path in SERVER_NEEDS.values())
    assert not any(Offer(SERVER, ServerCapabilities()).has(p) for p in SERVER_NEEDS.values())
    assert set(SERVER_NEEDS) | set(CLIENT_NEEDS) <= set(REQUESTS)


def test_the_tasks_extension_brings_its_methods() -> None:
    offer = Offer(SERVER, ServerCapabilities(extensions={TASKS: {}}))
    assert offer.has("tasks")
    assert offer.has("tasks.cancel")
    assert not offer.has("tasks.list")


# Announcing


def test_a_version_narrows_what_is_announced() -> None:
    capabilities = ServerCapabilities(
        tools=ListChangedCapability(list_changed=True), completions={}, tasks=TasksCapability()
    )
    assert told(capabilities, "2025-11-25") == (
        b'{"completions":{},"tools":{"listChanged":true},"tasks":{}}'
    )
    assert told(capabilities, "2025-03-26") == b'{"completions":{},"tools":{"listChanged":true}}'
    assert told(capabilities, "2024-11-05") == b'{"tools":{"listChanged":true}}'


def test_of_extensions_only_the_shared_are_announced() -> None:
    capabilities = ServerCapabilities(extensions={TASKS: {}, UI: {"mimeTypes": ["text/html"]}})
    assert told(capabilities, "2026-07-28", extensions={UI: {}, "com.example/x": {}}) == (
        b'{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html"]}}}'
    )
    assert told(capabilities, "2026-07-28") == b"{}"
    assert capabilities.extensions is not None
    assert set(capabilities.extensions) == {TASKS, UI}


# Asking a client


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        (ElicitationCapability(), "elicitation"),
        (ElicitationCapability(), "elicitation.form"),
        (ElicitationCapability(form={}), "elicitation.form"),
        (ElicitationCapability(form={}, url={}), "elicitation.form"),
        (ElicitationCapability(url={}), "elicitation.url"),
        (ElicitationCapability(form={}, url={}), "elicitation.url"),
    ],
)
def test_a_mode_of_elicitation_a_client_has(declared: ElicitationCapability, path: str) -> None:
    require(ClientCapabilities(elicitation=declared), path)


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        (None, "elicitation"),
        (None, "elicitation.form"),
        (None, "elicitation.url"),
        (ElicitationCapability(), "elicitation.url"),
        (ElicitationCapability(form={}), "elicitation.url"),
        (ElicitationCapability(url={}), "elicitation.form"),
    ],
)
def test_a_mode_of_elicitation_a_client_lacks(
    declared: ElicitationCapability | None, path: str
) -> None:
    with pytest.raises(MissingClientCapability, match=f"`{path}`"):
        require(ClientCapabilities(elicitation=declared), path)


def test_the_error_names_what_the_client_would_have_to_declare() -> None:
    with pytest.raises(MissingClientCapability) as caught:
        require(ClientCapabilities(), "sampling.tools")
    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": {"sampling": {"tools": {}}}}
    with pytest.raises(MissingClientCapability) as caught:
        require(ClientCapabilities(), f"extensions.{UI}")
    assert caught.value.data == {"requiredCapabilities": {"extensions": {UI: {}}}}


def test_a_declared_capability_is_enough() -> None:
    require(ClientCapabilities(roots=RootsCapability()), "roots")
    require(ClientCapabilities(extensions={UI: {}}), f"extensions.{UI}")


# Both ends check before anything runs


PARAMS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "x"},
    "resources/read": {"uri": "a:b"},
    "resources/subscribe": {"uri": "a:b"},
    "resources/unsubscribe": {"uri": "a:b"},
    "prompts/get": {"name": "x"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "x"},
        "argument": {"name": "a", "value": "b"},
    },
    "logging/setLevel": {"level": "info"},
    "tasks/get": {"taskId": "1"},
    "tasks/result": {"taskId": "1"},
    "tasks/cancel": {"taskId": "1"},
    "tasks/update": {"taskId": "1", "inputResponses": {}},
}


@pytest.mark.parametrize(("method", "path"), SERVER_NEEDS.items())
def test_a_method_whose_capability_is_absent_is_not_found(method: str, path: str) -> None:
    end = a_session(capabilities=ServerCapabilities())
    params = PARAMS.get(method, {})
    is_modern = REQUESTS[method].since == "2026-07-28"
    message = modern(1, method, params) if is_modern else request(1, method, params)
    error = error_of(end.receive(message), 1)
    assert error["code"] == -32601
    assert f"`{path}`" in error["message"]
    assert error["data"] == {"method": method, "capability": path}
    assert not end.in_flight


def test_subscribing_needs_more_than_resources() -> None:
    end = a_session(capabilities=ServerCapabilities(resources=ResourcesCapability()))
    assert isinstance(end.receive(request(1, "resources/list")), Call)
    error = error_of(end.receive(request(2, "resources/subscribe", {"uri": "a:b"})), 2)
    assert error["data"]["capability"] == "resources.subscribe"


def test_an_offer_may_be_renewed() -> None:
    end = a_session(capabilities=ServerCapabilities())
    end.offer.renew(ServerCapabilities(tools=ListChangedCapability()))
    assert isinstance(end.receive(request(1, "tools/list")), Call)


@pytest.mark.parametrize(("method", "path"), CLIENT_NEEDS.items())
def test_a_client_refuses_what_it_did_not_declare(method: str, path: str) -> None:
    end = a_client_session(capabilities=ClientCapabilities())
    params = PARAMS.get(method, {"message": "?", "messages": [], "maxTokens": 1})
    error = error_of(end.receive(request(1, method, params)), 1)
    assert error["code"] == -32601
    assert error["data"] == {"method": method, "capability": path}
    assert not end.in_flight


@pytest.mark.parametrize(
    ("declared", "mode", "takes"),
    [
        (ElicitationCapability(), None, True),
        (ElicitationCapability(), "form", True),
        (ElicitationCapability(), "url", False),
        (ElicitationCapability(form={}), "url", False),
        (ElicitationCapability(url={}), "url", True),
        (ElicitationCapability(url={}), None, False),
    ],
)
def test_a_client_refuses_a_mode_it_did_not_declare(
    declared: ElicitationCapability, mode: str | None, takes: bool
) -> None:
    end = a_client_session(capabilities=ClientCapabilities(elicitation=declared))
    params = {"message": "Who?", "url": "https://example.com"} | ({"mode": mode} if mode else {})
    event = end.receive(request(1, "elicitation/create", params))
    if takes:
        assert isinstance(event, Call)
    else:
        error = error_of(event, 1)
        assert error["code"] == -32602
        assert error["data"]["capability"] == f"elicitation.{mode or 'form'}"


def test_absent_is_an_error_like_any_unknown_method() -> None:
    error = absent("tools/list", "tools")
    assert error.code == -32601
    assert error.message.startswith("Method not found")
