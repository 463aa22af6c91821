"""The table of methods, against the one of `mcp-types`."""

from typing import Any

import pytest
from mcp_types import methods as oracle

from mcpearl.protocol.versions import VERSIONS
from mcpearl.types.base import NotificationParams, RequestParams, Result
from mcpearl.types.methods import NOTIFICATIONS, REQUESTS, Method
from mcpearl.types.tasks import ExtensionTaskNotificationParams

MODERN = "2026-07-28"
PARAMS = RequestParams | NotificationParams | ExtensionTaskNotificationParams


def ours(table: dict[str, Method], side: str) -> set[tuple[str, str]]:
    return {
        (method.name, version)
        for method in table.values()
        for version in VERSIONS
        if method.since <= version <= (method.until or version)
        and sender(method, version) in (side, "both")
        and "tasks" not in method.name
    }


def sender(method: Method, version: str) -> str:
    modern = method.modern_sender if version == MODERN else None
    return modern or method.sender


@pytest.mark.parametrize(
    ("table", "side", "theirs"),
    [
        (REQUESTS, "client", oracle.CLIENT_REQUESTS),
        (REQUESTS, "server", oracle.SERVER_REQUESTS),
        (NOTIFICATIONS, "client", oracle.CLIENT_NOTIFICATIONS),
        (NOTIFICATIONS, "server", oracle.SERVER_NOTIFICATIONS),
    ],
)
def test_each_side_sends_what_the_oracle_says(
    table: dict[str, Method], side: str, theirs: dict[tuple[str, str], Any]
) -> None:
    assert ours(table, side) == set(theirs)


def test_results_that_may_be_questions() -> None:
    asking = {name for name, method in REQUESTS.items() if method.input_required}
    assert asking == set(oracle.INPUT_REQUIRED_METHODS)


def test_requests_have_results_and_notifications_have_none() -> None:
    assert all(issubclass(method.result or type, Result) for method in REQUESTS.values())
    assert all(method.result is None for method in NOTIFICATIONS.values())


def test_params_and_results_are_types_of_the_specification() -> None:
    for method in (*REQUESTS.values(), *NOTIFICATIONS.values()):
        assert issubclass(
            method.params, RequestParams | NotificationParams | ExtensionTaskNotificationParams
        )
        assert issubclass(method.modern_result or Result, Result)


def test_tasks_changed_shape() -> None:
    get = REQUESTS["tasks/get"]
    assert get.result is not get.modern_result
    assert (get.sender, get.modern_sender) == ("both", "client")
    assert {m.name for m in REQUESTS.values() if m.extension} == {
        "tasks/get",
        "tasks/cancel",
        "tasks/update",
    }
    assert [m.name for m in NOTIFICATIONS.values() if m.extension] == ["notifications/tasks"]
    assert REQUESTS["tasks/result"].until == REQUESTS["tasks/list"].until == "2025-11-25"
