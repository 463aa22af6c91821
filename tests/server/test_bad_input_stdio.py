"""Bad input to a running server process: each piece costs an answer, and no more."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.stdio_driver import HANGS, StdioServer
from tests.server.wire import meta
from tests.waiting import wait_until

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def process() -> Iterator[StdioServer]:
    with StdioServer() as server:
        server.initialize()
        yield server


@pytest.fixture
def server(process: StdioServer) -> Iterator[StdioServer]:
    """The same process for every test: it must be well after each of them."""
    yield process
    process.is_well()
    assert not process._kept, f"unexpected messages: {process._kept}"


def refusal(server: StdioServer, data: bytes, id: Any = None) -> dict[str, Any]:
    """Send a line and give the error it gets."""
    server.raw(data + b"\n")
    error: dict[str, Any] = server.answer_to(id)["error"]
    return error


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"\x00\x01\x02\xfe\xff",
        b'{"jsonrpc":"2.0","id":1,"method":"pi',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
        b'"\xc3\x28"',
        b"[1,2",
        b"[" * 10_000 + b"]" * 10_000,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
        b"\xef\xbb\xbf{}",
        b"NaN",
    ],
    ids=lambda line: repr(line[:24]),
)  # fmt: skip
def test_not_json(server: StdioServer, line: bytes) -> None:
    assert refusal(server, line)["code"] in (-32700, -32600)


@pytest.mark.parametrize(
    ("message", "id"),
    [
        ({"id": 50, "method": "ping"}, 50),
        ({"jsonrpc": "1.0", "id": 51, "method": "ping"}, 51),
        ({"jsonrpc": 2.0, "id": 52, "method": "ping"}, 52),
        ({"jsonrpc": "2.0", "id": 53}, 53),
        ({"jsonrpc": "2.0", "id": 54, "method": 5}, 54),
        ({"jsonrpc": "2.0", "id": 55, "method": None}, 55),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": [1], "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, None),
        ({}, None),
        (5, None),
        (None, None),
        ("ping", None),
        ([], None),
        ([{"jsonrpc": "2.0", "id": 56, "method": "ping"}], None),
    ],
    ids=json.dumps,
)
def test_not_a_message(server: StdioServer, message: Any, id: Any) -> None:
    assert refusal(server, json.dumps(message).encode(), id)["code"] == -32600


@pytest.mark.parametrize("params", [5, "text", [1, 2], None, True])
def test_params_of_the_wrong_shape(server: StdioServer, params: Any) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 60, "method": "tools/call", "params": params})
    assert refusal(server, line.encode(), 60)["code"] in (-32600, -32602)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 5},
        {"name": None},
        {"name": "add", "arguments": 5},
        {"name": "add", "arguments": [1]},
        {"name": "add", "_meta": 5},
        {"name": "add", "_meta": {"io.modelcontextprotocol/protocolVersion": 5}},
    ],
    ids=json.dumps,
)
def test_params_that_do_not_fit(server: StdioServer, params: Any) -> None:
    answer = server.ask("tools/call", params)
    if "error" in answer:
        assert answer["error"]["code"] in (-32602, -32022)
    else:
        assert answer["result"]["isError"]


def test_arguments_nested_ten_thousand_deep(server: StdioServer) -> None:
    deep = b'{"a":' * 10_000 + b"1" + b"}" * 10_000
    line = b'{"jsonrpc":"2.0","id":61,"method":"tools/call","params":{"name":"add","arguments":%b}}'
    server.raw(line % deep + b"\n")
    answer = server.next()
    assert answer is not None
    assert "error" in answer or answer["result"]["isError"]


def test_a_line_of_a_hundred_megabytes(server: StdioServer) -> None:
    before = peak = server.rss()
    piece = b"x" * MIB
    for _ in range(100):
        server.raw(piece)
        peak = max(peak, server.rss())
    assert "limit" in refusal(server, b"")["message"]
    assert peak - before < 64 * MIB


def test_lines_that_never_end_one_after_the_other(server: StdioServer) -> None:
    before = server.rss()
    for _ in range(3):
        server.raw(b'{"a":"' + b"y" * 17 * MIB + b"\n")
        answer = server.answer_to(None)
        assert "limit" in answer["error"]["message"]
    assert server.rss() - before < 64 * MIB


def test_blank_lines_and_carriage_returns_are_nothing(server: StdioServer) -> None:
    server.raw(b"\n\r\n   \n\t\n")
    server.raw(b'{"jsonrpc":"2.0","id":62,"method":"ping"}\r\n')
    assert server.answer_to(62)["result"] == {}


def test_a_byte_at_a_time(server: StdioServer) -> None:
    for byte in b'{"jsonrpc":"2.0","id":63,"method":"ping"}\n':
        server.raw(bytes([byte]))
    assert server.answer_to(63)["result"] == {}


def test_answers_never_asked_for(server: StdioServer) -> None:
    server.send(
        {"jsonrpc": "2.0", "id": 999, "result": {}},
        {"jsonrpc": "2.0", "id": "x", "result": {}},
        {"jsonrpc": "2.0", "id": 999, "error": {"code": 1, "message": "no"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}},
        {"jsonrpc": "2.0", "id": 999, "result": {}, "error": {"code": 1, "message": "both"}},
        {"jsonrpc": "2.0", "id": 999, "error": 5},
        {"jsonrpc": "2.0", "result": {}},
    )


def test_an_id_that_is_still_in_flight(server: StdioServer) -> None:
    call = {"name": "sleep", "arguments": {"seconds": 0.3}}
    message = {"jsonrpc": "2.0", "id": "twice", "method": "tools/call", "params": call}
    server.send(message, message)
    first, second = server.next(), server.next()
    assert first is not None
    assert second is not None
    assert first["error"]["code"] == -32600
    assert second["result"]["structuredContent"] == {"result": "slept"}
    assert "result" in server.ask("tools/call", call, id="twice"), "and is free again after it"


def test_strange_ids_are_given_back(server: StdioServer) -> None:
    for id in (0, -1, 2**53 + 1, 10**30, "", "\u0000", "x" * 10_000, "🧪"):
        assert server.ask("ping", id=id) == {"jsonrpc": "2.0", "id": id, "result": {}}


def test_strings_and_numbers_are_different_ids(server: StdioServer) -> None:
    call = {"name": "sleep", "arguments": {"seconds": 0.1}}
    server.request("tools/call", call, id=7000)
    server.request("tools/call", call, id="7000")
    assert "result" in server.answer_to(7000)
    assert "result" in server.answer_to("7000")


def test_unknown_methods(server: StdioServer) -> None:
    for method in ("nothing/here", "", "tools/call/", "x" * 100_000, "\u0000", "notifications/x"):
        assert server.ask(method)["error"]["code"] == -32601
    assert server.ask("resources/list")["error"]["data"]["capability"] == "resources"


def test_unknown_notifications(server: StdioServer) -> None:
    server.send(
        {"jsonrpc": "2.0", "method": "notifications/nothing"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5555}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": None}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    )


def test_initialize_twice(server: StdioServer) -> None:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "again", "version": "1"},
    }
    for version in ("2024-11-05", "2025-11-25"):
        answer = server.ask("initialize", params | {"protocolVersion": version})
        assert answer["result"]["protocolVersion"] == version
        server.is_well()  # a client need not say that it is initialized
    server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    server.is_well()


def test_a_modern_request_in_an_unknown_version(server: StdioServer) -> None:
    said = meta(**{"io.modelcontextprotocol/protocolVersion": "2099-01-01"})
    answer = server.ask("tools/list", {"_meta": said})
    assert answer["error"]["code"] == -32022
    assert "2026-07-28" in answer["error"]["data"]["supported"]


def test_both_eras_on_one_connection(server: StdioServer) -> None:
    call = {"name": "add", "arguments": {"a": 2, "b": 2}}
    assert "resultType" not in server.ask("tools/call", call)["result"]
    modern = server.ask("tools/call", call | {"_meta": meta()})
    assert modern["result"]["resultType"] == "complete"


# Before and during initialize, on a process of their own


def test_requests_before_initialize() -> None:
    with StdioServer() as server:
        assert server.ask("ping")["result"] == {}
        refused = server.ask("tools/list")
        assert refused["error"]["code"] == -32600
        assert "initialize" in refused["error"]["message"]
        assert server.ask("initialize", {"protocolVersion": 5})["error"]["code"] == -32602
        assert server.ask("initialize")["error"]["code"] == -32602
        server.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        assert server.answer_to(None)["error"]["code"] == -32600
        server.initialize()
        server.is_well()


def test_requests_between_initialize_and_initialized() -> None:
    with StdioServer() as server:
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "hasty", "version": "1"},
        }
        server.ask("initialize", params)
        assert server.ask("tools/list")["result"]["tools"]
        assert server.ask("ping")["result"] == {}
        server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        server.is_well()


@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", "", "2026-07-28", "x" * 1000])
def test_initialize_with_a_version_without_sessions(version: str) -> None:
    with StdioServer() as server:
        assert server.initialize(version)["result"]["protocolVersion"] == "2025-11-25"
        server.is_well()


def test_batches_in_the_version_that_has_them() -> None:
    with StdioServer() as server:
        server.initialize("2025-03-26")
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        server.send(
            [
                {"jsonrpc": "2.0", "id": 1, "method": "ping"},
                {"jsonrpc": "2.0", "method": "notifications/nothing"},
                {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
                {"jsonrpc": "2.0", "id": 3, "method": "nothing"},
                5,
            ]
        )
        answers: Any = server.next()
        assert isinstance(answers, list)
        assert {answer["id"] for answer in answers} == {1, 2, 3, None}
        server.send([])
        assert server.answer_to(None)["error"]["code"] == -32600
        server.send([{"jsonrpc": "2.0", "method": "notifications/nothing"}])
        server.send([{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in range(2000)])
        assert "1000" in server.answer_to(None)["error"]["message"]
        server.is_well()


# How much at once


def test_more_calls_at_once_than_the_soft_limit_are_all_answered() -> None:
    """Reading pauses at 8 calls in hand: the hard limit of 32 is never met, nothing is lost."""
    with StdioServer("--small") as server:
        server.initialize()
        call = {"name": "sleep", "arguments": {"seconds": 0.02}}
        server.send(
            *(
                {"jsonrpc": "2.0", "id": f"c{id}", "method": "tools/call", "params": call}
                for id in range(200)
            )
        )
        answers = [server.answer_to(f"c{id}") for id in range(200)]
        assert all(a["result"]["structuredContent"] == {"result": "slept"} for a in answers)
        server.is_well()


def test_waiting_for_the_client_while_full_is_no_deadlock() -> None:
    """The answers the handlers wait for stand behind calls that do not fit."""
    with StdioServer("--small") as server:
        server.initialize(elicitation={})
        ask = {"name": "asks", "arguments": {}}
        add = {"name": "sleep", "arguments": {"seconds": 0.01}}
        server.send(
            *(
                {"jsonrpc": "2.0", "id": f"a{id}", "method": "tools/call", "params": ask}
                for id in range(8)
            ),
            *(
                {"jsonrpc": "2.0", "id": f"b{id}", "method": "tools/call", "params": add}
                for id in range(16)
            ),
        )
        for _ in range(8):
            question = server.next()
            while question is not None and question.get("method") != "elicitation/create":
                server._kept.append(question)
                question = server.lines.get(timeout=HANGS)
            assert question is not None
            server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        for id in range(8):
            answer = server.answer_to(f"a{id}")
            assert answer["result"]["structuredContent"] == {"result": "decline"}
        for id in range(16):
            assert "result" in server.answer_to(f"b{id}")


def test_the_hard_limit_is_a_clear_error() -> None:
    """A handler waits for the client, so reading cannot pause; past 32 calls are refused."""
    with StdioServer("--small") as server:
        server.initialize(elicitation={})
        ask = {"name": "asks", "arguments": {}}
        server.send(
            *(
                {"jsonrpc": "2.0", "id": f"a{id}", "method": "tools/call", "params": ask}
                for id in range(8)
            )
        )
        for _ in range(8):
            question = server.next()
            assert question is not None
            assert question["method"] == "elicitation/create"
        server.send(
            *(
                {"jsonrpc": "2.0", "id": f"b{id}", "method": "tools/call", "params": ask}
                for id in range(40)
            )
        )
        refused = [server.answer_to(f"b{id}") for id in range(24, 40)]
        assert all("limit is 32" in answer["error"]["message"] for answer in refused)
        assert server.ask("ping")["result"] == {}


def test_calls_that_never_end_can_still_be_cancelled_when_full() -> None:
    """Nothing ends, so nothing makes room; after a while the server reads on all the same."""
    with StdioServer("--small") as server:
        server.initialize()
        call = {"name": "sleep", "arguments": {"seconds": 3600}}
        server.send(
            *(
                {"jsonrpc": "2.0", "id": f"c{id}", "method": "tools/call", "params": call}
                for id in range(8)
            ),
            *(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
                for id in [f"c{number}" for number in range(8)]
            ),
        )
        server.is_well()


# Others are served meanwhile


def test_a_flood_of_progress_leaves_room_for_others() -> None:
    with StdioServer() as server:
        server.initialize()
        params = {"name": "floods", "arguments": {}, "_meta": {"progressToken": "flood"}}
        flood = server.request("tools/call", params)
        wait_until(lambda: not server.lines.empty())
        for _ in range(10):
            id = server.start("add", a=1, b=2)
            while (message := server.lines.get(timeout=HANGS)) is not None:
                if message.get("id") == id:
                    break
        server.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": flood}}
        )
        ping = server.request("ping")
        while (message := server.lines.get(timeout=HANGS)) is not None and message.get(
            "id"
        ) != ping:
            pass
        assert server.lines.empty(), "nothing more after the cancellation"
        server.is_well()


def test_tools_that_never_return_leave_room_for_others() -> None:
    with StdioServer() as server:
        server.initialize()
        server.start("hang")
        server.start("sleep", seconds=3600)
        server.start("stubborn")
        server.is_well()


@pytest.mark.parametrize("how", ["exit", "interrupt", "generator", "raise"])
def test_tools_that_end_the_program_do_not(server: StdioServer, how: str) -> None:
    answer = server.call("exits", how=how)
    assert answer["result"]["isError"]


def test_async_tools_that_end_the_program_do_not(server: StdioServer) -> None:
    answer = server.call("exits_async")
    assert answer["result"]["isError"]
    assert "SystemExit" in answer["result"]["content"][0]["text"]
