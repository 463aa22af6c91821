"""From a method's name to its params, its versions and its capability."""

from typing import Any

import pytest

from mcpearl.protocol.capabilities import SERVER_NEEDS
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.routes import (
    NOTICES_TO_CLIENT,
    NOTICES_TO_SERVER,
    TO_CLIENT,
    TO_SERVER,
    unknown_method,
)
from mcpearl.protocol.versions import VERSIONS
from mcpearl.types.methods import NOTIFICATIONS, REQUESTS


def test_every_method_goes_to_whom_it_is_sent() -> None:
    assert set(TO_SERVER) | set(TO_CLIENT) == set(REQUESTS)
    assert set(NOTICES_TO_SERVER) | set(NOTICES_TO_CLIENT) == set(NOTIFICATIONS)
    both = {"ping", "tasks/get", "tasks/cancel", "tasks/result", "tasks/list"}
    assert set(TO_SERVER) & set(TO_CLIENT) == both


def test_a_route_knows_its_capability() -> None:
    assert {name: route.needs for name, route in TO_SERVER.items() if route.needs} == SERVER_NEEDS


@pytest.mark.parametrize("name", [*TO_SERVER, *TO_CLIENT])
def test_a_route_is_open_from_its_first_version_to_its_last(name: str) -> None:
    route = TO_SERVER.get(name) or TO_CLIENT[name]
    method = REQUESTS[name]
    for version in VERSIONS.values():
        there = method.since <= version.name <= (method.until or "9")
        if there:
            route.check_version(version)
        else:
            with pytest.raises(McpError, match=version.name) as caught:
                route.check_version(version)
            assert caught.value.code == -32601


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"[]", -32602),
        (b'{"name":1}', -32602),
        (b"{}", -32602),
        (b'{"name":"\xff"}', -32700),
        (b'{"name":', -32700),
        (b'{"name":"x","_meta":{"a":%b}}' % (b"[" * 100_000 + b"]" * 100_000), -32602),
    ],
)
def test_params_that_do_not_fit(raw: bytes, code: int) -> None:
    with pytest.raises(McpError, match="`tools/call`") as caught:
        TO_SERVER["tools/call"].decode(raw)
    assert caught.value.code == code


def test_members_nobody_knows_are_no_mistake() -> None:
    assert TO_SERVER["tools/call"].decode(b'{"name":"x","com.example/y":1}').name == "x"


def test_members_of_open_params_are_kept() -> None:
    params: Any = NOTICES_TO_CLIENT["notifications/tasks"].decode(
        b'{"taskId":"1","status":"working","createdAt":"","lastUpdatedAt":"","ttlMs":null,'
        b'"com.example/note":"soon"}'
    )
    assert params.task_id == "1"
    assert params.extra == {"com.example/note": "soon"}


def test_an_unknown_method_is_named_in_short() -> None:
    assert unknown_method("no/such").data == {"method": "no/such"}
    assert len(unknown_method("x" * 10_000).message) < 200
