"""What servers and clients record, whatever happens to them."""

import asyncio
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Context, Gateway, Limits, McpError, Observer, Server
from mcpearl.auth import BearerToken, Principal, StaticTokens
from mcpearl.protocol.events import Call, Caller
from mcpearl.protocol.versions import VERSIONS
from mcpearl.receipts.keys import rotate
from mcpearl.receipts.proofs import prove, salts_of, unfinished
from mcpearl.receipts.receipts import Receipts
from mcpearl.receipts.verifier import Log, Proof, load_keys
from mcpearl.runtime.arguments import Unusable
from mcpearl.testing.clock import MovableClock
from mcpearl.types.capabilities import ClientCapabilities
from tests.ports import free_port
from tests.receipts.logs import records
from tests.server.wire import wire
from tests.waiting import eventually

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def make_app(receipts: Receipts | Path, **options: Any) -> Server:
    app = Server("weather", receipts=receipts, **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fail() -> str:
        raise ValueError("no")

    @app.tool
    async def wait(ctx: Context) -> None:
        await asyncio.Event().wait()

    @app.tool
    async def large(text: str) -> str:
        return text * 2

    @app.tool(task="required")
    async def report() -> str:
        return "done"

    @app.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    return app


def verified(folder: Path) -> list[dict[str, Any]]:
    """Verify a log, and return its records."""
    log = Log(folder, load_keys([str(folder / "key.pub")]))
    log.verify()
    assert log.signed == log.size
    assert not log.torn
    return records(folder)


def calls_of(held: list[dict[str, Any]], method: str = "tools/call") -> list[tuple[Any, ...]]:
    """Return name, outcome and task of the calls of a method, by their two records."""
    ends = {record["call"]: record for record in held if record["kind"] == "end"}
    return [
        (record.get("name"), *(ends.get(record["call"], {}).get(of) for of in ("outcome", "task")))
        for record in held
        if record["kind"] == "begin" and record["method"] == method
    ]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    "id",
    ["18446744073709551616", "-9223372036854775809", "9" * 4000, '"a,\\"result\\":"', '"\\u0000"'],
)
async def test_no_id_of_a_request_keeps_other_calls_from_being_recorded(
    tmp_path: Path, id: str, durable: bool
) -> None:
    app = make_app(Receipts(tmp_path, durable=durable))
    async with wire(app, "2025-11-25") as client:
        known = client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
        for method in ("tools/call", "made/up"):
            body = f'"method":"{method}","params":{{"name":"add","arguments":{{"a":1,"b":2}}}}'
            client.raw(f'{{"jsonrpc":"2.0","id":{id},{body}}}'.encode())
        answers = [await client.next() for _ in range(3)]
    assert {known, json.loads(id)} == {answer["id"] for answer in answers}
    held = verified(tmp_path)
    assert calls_of(held) == [("add", "result", None)] * 2
    begun, refused = (
        [each for each in held if each["kind"] == kind] for kind in ("begin", "refused")
    )
    asked = [str(json.loads(id))[:256]]
    assert [str(each["request"]) for each in begun] == [str(known), *asked]
    assert [each["request"] for each in refused] == asked


@pytest.mark.parametrize(
    ("subject", "recorded"),
    [("\ud800", "?"), (2**70, str(2**70)), ("x" * 100_000, "x" * 256), (None, None)],
)
async def test_no_principal_keeps_calls_from_being_recorded(
    tmp_path: Path, subject: Any, recorded: str | None
) -> None:
    """Whatever a verifier of the application's own makes of a token."""
    app = make_app(tmp_path)
    async with wire(app, "2025-11-25", principal=Principal(subject=subject)) as client:
        await client.call("add", {"a": 1, "b": 1})
    held = verified(tmp_path)
    assert calls_of(held) == [("add", "result", None)]
    assert [each.get("principal") for each in held if each["kind"] == "begin"] == [recorded]


@pytest.mark.parametrize(
    "parent", ["s3cret" * 20, "00-" + "Z" * 32 + "-" + "a" * 16 + "-01", "00-abc", "", 5]
)
async def test_what_is_not_a_trace_is_not_recorded(tmp_path: Path, parent: Any) -> None:
    async with Client(make_app(tmp_path), telemetry=False) as client:
        await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": parent})
    assert not any("trace" in record for record in verified(tmp_path))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_each_call_is_recorded_before_and_after(
    tmp_path: Path, durable: bool, version: str
) -> None:
    folder = tmp_path / "receipts"
    app = make_app(Receipts(folder, durable=durable))
    async with Client(app, protocol=version) as client:
        await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": TRACE})
        await client.call_tool("fail")
        with pytest.raises(McpError):
            await client.call_tool("nothing")
        await client.read_resource("note://one")
        await client.call_tool("large", {"text": "x" * 20_000})
        task = await client.start_task("report")
        await task.result()
    held = verified(folder)
    assert (held[0]["kind"], held[-1]["kind"]) == ("start", "stop")
    assert calls_of(held)[:4] == [
        ("add", "result", None),
        ("fail", "tool_error", None),
        ("nothing", "error", None),
        ("large", "result", None),
    ]
    name, outcome, id = calls_of(held)[4]
    assert (name, outcome, id) == ("report", "result", task.id)
    assert calls_of(held, "resources/read") == [("note://one", "result", None)]
    first = next(record for record in held if record.get("name") == "add")
    assert first["trace"] == "0af7651916cd43dd8448eb211c80319c"
    assert first["version"] == version
    about = {r["task"] for r in held if r["kind"] == "begin" and r["method"].startswith("tasks/")}
    assert about == {task.id}
    text = b"".join(path.read_bytes() for path in folder.glob("*.log"))
    assert b"x" * 100 not in text
    assert not unfinished(folder)


@pytest.mark.parametrize("durable", [False, True])
async def test_the_principal_of_a_call_over_http_is_recorded(tmp_path: Path, durable: bool) -> None:
    folder = tmp_path / "receipts"
    who = Principal("alice", client_id="app", issuer="https://issuer.example")
    tokens = StaticTokens({"a-token-of-alice-00001": who})
    app = make_app(Receipts(folder, durable=durable), auth=tokens)
    async with (
        app.serving("http", port=0) as url,
        Client(url, auth=BearerToken("a-token-of-alice-00001")) as client,
    ):
        await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 2}) for n in range(30)))
    begun = [record for record in verified(folder) if record.get("name") == "add"]
    assert len(begun) == 30
    for record in begun:
        assert (record["principal"], record["client"]) == ("alice", "app")
        assert record["issuer"] == "https://issuer.example"


async def test_both_sides_record_and_contents_can_be_compared(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    async with Client(make_app(folder), receipts=folder) as client:
        result = await client.call_tool("add", {"a": 20, "b": 22})
    held = verified(folder)
    roles = {record["run"]: record["role"] for record in held if record["kind"] == "start"}
    assert sorted(roles.values()) == ["client", "server"]
    begun = {roles[r["call"][:12]]: r for r in held if r.get("name") == "add"}
    assert sorted(begun) == ["client", "server"]
    digests = {}
    for role, record in begun.items():
        salt, _ = salts_of(tmp_path / "receipts.key", record["call"], folder)
        digests[role] = (salt, record["arguments"])
    assert digests["client"][1] != digests["server"][1]  # of the same bytes, with other salts
    assert result.data == 42
    for name, text in prove(folder, begun["server"]["call"]).items():
        proof = Proof.parse(text.encode())
        proof.verify(load_keys([str(folder / "key.pub")]))
        assert proof.record["call"] == begun["server"]["call"]
        assert name == f"{proof.number}.tlog-proof"


async def test_a_digest_is_of_the_bytes_on_the_wire(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    program = [sys.executable, "-m", "tests.receipts.kill_server", str(folder)]
    params = b'{"name": "add",  "arguments":{"b":2,"a":1}}'
    with started(program) as server:
        ask(server, b'{"jsonrpc":"2.0","id":"a,b","method":"tools/call","params":%b}' % params)
        answer = server.stdout.readline()
    held = await eventually(lambda: stopped(folder))
    begin, end = (record for record in held if "call" in record)
    assert begin["request"] == "a,b"
    arguments, result = salts_of(tmp_path / "receipts.key", begin["call"], folder)
    assert sha256(arguments + params).hexdigest() == begin["arguments"]
    body = answer.rstrip().removeprefix(b'{"jsonrpc":"2.0","id":"a,b","result":')[:-1]
    assert json.loads(body)["structuredContent"] == {"result": 3}
    assert sha256(result + body).hexdigest() == end["result"]


async def test_a_cancelled_call_and_one_without_an_end_show(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    async with Client(make_app(folder), timeout=30) as client:
        waiting = asyncio.ensure_future(client.call_tool("wait"))
        await eventually(lambda: any(r.get("name") == "wait" for r in records(folder)))
        assert [shown.record["name"] for shown in unfinished(folder)] == ["wait"]
        waiting.cancel()
        await eventually(lambda: not unfinished(folder))
    assert ("wait", "cancelled", None) in calls_of(verified(folder))


@pytest.mark.parametrize("durable", [False, True])
async def test_records_are_in_the_order_of_what_happened(tmp_path: Path, durable: bool) -> None:
    """Calls that wait are noted in two parts, and others in one, of which none overtakes another."""
    app = make_app(Receipts(tmp_path, durable=durable))
    gate = asyncio.Event()

    @app.tool
    async def held() -> str:
        await gate.wait()
        return "open"

    async with wire(app, "2025-11-25") as client:
        for name in ("held", "add", "large", "held", "fail", "held"):
            arguments = {"add": {"a": 1, "b": 2}, "large": {"text": "x" * 5000}}.get(name, {})
            client.request("tools/call", {"name": name, "arguments": arguments})
        for _ in range(3):
            await client.next()
        gate.set()
        for _ in range(3):
            await client.next()
    recorded = [each for each in verified(tmp_path) if "call" in each]
    names = {each["call"]: each["name"] for each in recorded if each["kind"] == "begin"}
    calls = [int(each["call"].partition("-")[2]) for each in recorded if each["kind"] == "begin"]
    assert calls == [1, 2, 3, 4, 5, 6]
    order = [(each["kind"], names[each["call"]]) for each in recorded]
    begun = [name for kind, name in order if kind == "begin"]
    assert begun == ["held", "add", "large", "held", "fail", "held"]
    assert [name for kind, name in order if kind == "end"][3:] == ["held", "held", "held"]
    times = [each["at"] for each in recorded]
    assert times == sorted(times)
    if not durable:
        assert order[:3] == [("begin", "held"), ("begin", "add"), ("end", "add")]


@pytest.mark.parametrize("durable", [False, True])
async def test_each_call_of_a_batch_is_recorded_however_it_ends(
    tmp_path: Path, durable: bool
) -> None:
    app = make_app(Receipts(tmp_path, durable=durable), limits=Limits(max_outgoing=3000))

    @app.tool
    async def formless() -> Any:
        return {"form": object()}

    @app.tool(timeout=0.01)
    async def late() -> None:
        await asyncio.Event().wait()

    names = ("add", "fail", "wait", "formless", "late", "nothing", "large", "add")
    arguments = {"add": {"a": 1, "b": 2}, "large": {"text": "x" * 2000}}
    async with wire(app, "2025-03-26") as client:
        known = [
            {
                "jsonrpc": "2.0",
                "id": f"{number}",
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments.get(name, {})},
            }
            for number, name in enumerate(names)
        ]
        client.raw(
            json.dumps([*known, {"jsonrpc": "2.0", "id": "x", "method": "no/such"}]).encode()
        )
        await eventually(lambda: {each.record["name"] for each in unfinished(tmp_path)} == {"wait"})
        client.notify("notifications/cancelled", {"requestId": "2"})
        answers = {each["id"]: each for each in await client.next()}
        single = client.request("tools/call", {"name": "large", "arguments": arguments["large"]})
        answers[single] = await client.next()
    held = verified(tmp_path)
    begun = {record["call"]: record for record in held if record["kind"] == "begin"}
    ends = [record for record in held if record["kind"] == "end"]
    assert [record["name"] for record in begun.values()] == [*names, "large"]
    assert sorted(begun) == sorted(record["call"] for record in ends)
    assert set(answers) == {record["request"] for record in begun.values()} - {"2"} | {"x"}
    for record in ends:
        id = begun[record["call"]]["request"]
        if id == "2":
            assert record["outcome"] == "cancelled"
        elif "error" in answers[id]:
            assert record["outcome"] == "error", id
        else:
            failed = answers[id]["result"].get("isError", False)
            assert record["outcome"] == ("tool_error" if failed else "result"), id


async def test_a_subscription_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    for durable in (False, True):
        app = make_app(Receipts(folder, durable=durable))
        async with Client(app) as client:
            await client.subscribe("note://one")
    listens = calls_of(verified(folder), "subscriptions/listen")
    assert len(listens) == 2
    assert {outcome for _, outcome, _ in listens} == {"cancelled"}


class Counting(Observer):
    def __init__(self) -> None:
        self.began = self.ended = 0

    def call_began(self, call: Any) -> None:
        self.began += 1

    def call_ended(self, *details: Any) -> None:
        self.ended += 1


async def test_sessions_and_refused_messages_are_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    async with wire(make_app(folder), "2025-11-25") as client:
        await client.ask("no/such", {"secret": "s3cret"})
        client.raw(b'{"jsonrpc": "2.0", "id": "s3cret-like", "method": 5}')
        await client.ask("ping")
    held = verified(folder)
    (session,) = (record for record in held if record["kind"] == "session")
    assert (session["version"], session["wire"]) == ("2025-11-25", "memory")
    refused = [record["code"] for record in held if record["kind"] == "refused"]
    assert refused == [-32601, -32600]
    assert not any("no/such" in str(record) for record in held)


async def test_calls_of_a_gateway_are_recorded_on_both_sides(tmp_path: Path) -> None:
    """The gateway's log and the upstream's are separate, and name the same trace."""
    outer, inner = tmp_path / "gateway", tmp_path / "upstream"
    gateway = Gateway({"weather": make_app(inner)}, receipts=outer, eager=True, telemetry=False)
    async with Client(gateway, telemetry=False) as client:
        sent = {"a": 1, "b": 2}
        result = await client.call_tool("weather__add", sent, meta={"traceparent": TRACE})
        assert result.text == "3"
    assert calls_of(verified(outer)) == [("weather__add", "result", None)]
    assert calls_of(verified(inner)) == [("add", "result", None)]
    traces = {
        record["trace"]
        for record in verified(outer) + verified(inner)
        if record.get("method") == "tools/call"
    }
    assert traces == {TRACE.split("-")[1]}


@pytest.mark.parametrize("outer_durable", [None, False, True])
@pytest.mark.parametrize("durable", [False, True])
async def test_calls_of_a_mounted_server_are_recorded_by_it_and_by_the_one_around_it(
    tmp_path: Path, outer_durable: bool | None, durable: bool
) -> None:
    gate = asyncio.Event()
    inner = make_app(Receipts(tmp_path / "inner", durable=durable))

    @inner.tool
    async def held() -> str:
        await gate.wait()
        return "open"

    receipts = None
    if outer_durable is not None:
        receipts = Receipts(tmp_path / "outer", durable=outer_durable)
    outer = Server("outer", receipts=receipts)
    outer.mount("in", inner)
    async with Client(outer) as client:
        waiting = asyncio.ensure_future(client.call_tool("in__held"))
        stopped = asyncio.ensure_future(client.call_tool("in__wait"))
        await client.call_tool("in__add", {"a": 1, "b": 2})
        await client.call_tool("in__fail")
        with pytest.raises(McpError):
            await client.read_resource("in+note://")
        await eventually(lambda: len(unfinished(tmp_path / "inner")) == 2)
        stopped.cancel()
        await eventually(lambda: len(unfinished(tmp_path / "inner")) == 1)
        gate.set()
        await waiting
    expected = [
        ("in__held", "result", None),
        ("in__wait", "cancelled", None),
        ("in__add", "result", None),
        ("in__fail", "tool_error", None),
    ]
    for name in ("inner", "outer")[: 1 if receipts is None else 2]:
        held_records = verified(tmp_path / name)
        assert sorted(calls_of(held_records)) == sorted(expected)
        assert not unfinished(tmp_path / name)
        ends = [record["call"] for record in held_records if record["kind"] == "end"]
        assert len(ends) == len(set(ends))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("outer_durable", [None, False, True])
async def test_a_failure_in_a_mounted_server_is_logged_once(
    tmp_path: Path,
    durable: bool,
    outer_durable: bool | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    receipts = None
    if outer_durable is not None:
        receipts = Receipts(tmp_path / "outer", durable=outer_durable)
    outer = Server("outer", receipts=receipts)
    outer.mount("in", make_app(Receipts(tmp_path / "inner", durable=durable)))
    async with Client(outer) as client:
        await client.call_tool("in__fail")
    raised = [each.message for each in caplog.records if each.exc_info is not None]
    assert raised == ["tools/call in__fail raised"]


async def test_a_handler_that_calls_its_own_server_is_recorded_around_that_call(
    tmp_path: Path,
) -> None:
    app = make_app(tmp_path)

    @app.tool
    async def twice(a: int) -> int:
        async with Client(app) as client:
            return int((await client.call_tool("add", {"a": a, "b": a})).data)

    async with Client(app) as client:
        await asyncio.gather(*(client.call_tool("twice", {"a": n}) for n in range(10)))
    held = verified(tmp_path)
    assert (
        sorted(calls_of(held)) == [("add", "result", None)] * 10 + [("twice", "result", None)] * 10
    )
    assert not unfinished(tmp_path)


async def test_an_observer_and_receipts_go_together(tmp_path: Path) -> None:
    observer = Counting()
    async with Client(make_app(tmp_path / "receipts", observer=observer)) as client:
        for _ in range(5):
            await client.call_tool("add", {"a": 1, "b": 2})
    held = verified(tmp_path / "receipts")
    assert observer.began == observer.ended == sum(record["kind"] == "begin" for record in held)


async def test_a_clock_that_goes_back_does_no_harm(tmp_path: Path, clock: MovableClock) -> None:
    folder = tmp_path / "receipts"
    async with Client(make_app(folder)) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        # The time of day is taken once for all calls that are handed over together.
        await eventually(lambda: ("add", "result", None) in calls_of(records(folder)))
        ahead, clock._ahead = clock._ahead, clock._ahead - 86_400
        before = clock.monotonic
        clock.monotonic = lambda: before() + 86_400  # type: ignore[method-assign]
        await client.call_tool("add", {"a": 1, "b": 2})
        assert clock._ahead < ahead
    held = [record for record in verified(folder) if "call" in record]
    times = [record["at"] for record in held]
    assert times != sorted(times)
    assert all(record["duration"] < 60 for record in held if record["kind"] == "end")


# Processes that end


def started(program: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def ask(server: "subprocess.Popen[bytes]", *messages: bytes) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    initialize = (
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}'
    )
    server.stdin.write(initialize + b"\n")
    server.stdout.readline()
    ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    server.stdin.write(b"".join(message + b"\n" for message in (ready, *messages)))


def stopped(folder: Path) -> list[dict[str, Any]] | None:
    held = records(folder)
    return held if held and held[-1]["kind"] in ("stop", "gone") else None


def added(number: int) -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add","arguments":'
        b'{"a":%d,"b":1}}}' % (number, number)
    )


@pytest.mark.parametrize("mode", ["durable", "behind"])
async def test_a_server_that_is_killed_under_load_leaves_a_log_that_verifies(
    tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "receipts"
    program = [sys.executable, "-m", "tests.receipts.kill_server", str(folder), mode]
    wait = b'{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"wait"}}'
    answered: set[int] = set()
    with started(program) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        ask(server, wait)
        # Notes are handed over some milliseconds later; 500 answers may leave before that.
        await eventually(lambda: "wait" in {shown.record["name"] for shown in unfinished(folder)})
        server.stdin.write(b"".join(added(number) + b"\n" for number in range(1, 3000)))
        left = b""
        while len(answered) < 500:
            left += os.read(server.stdout.fileno(), 1 << 16)
            *whole, left = left.split(b"\n")
            answered |= {json.loads(line)["id"] for line in whole}
        server.kill()
    held = await eventually(lambda: stopped(folder))
    assert held[-1]["kind"] == "gone"
    await eventually(lambda: Log(folder, load_keys([str(folder / "key.pub")])).verify() is None)
    assert "wait" in {shown.record["name"] for shown in unfinished(folder)}
    requests = {r["call"]: r["request"] for r in held if r["kind"] == "begin"}
    ended = {requests[record["call"]] for record in held if record["kind"] == "end"}
    if mode == "durable":
        assert answered <= ended
    async with Client(make_app(folder)) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    assert len(verified(folder)) >= len(held) + 4


async def test_durable_answers_leave_after_their_records(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    async with Client(make_app(Receipts(folder, durable=True))) as client:
        for count in range(1, 20):
            await client.call_tool("add", {"a": 1, "b": 2})
            assert calls_of(records(folder)).count(("add", "result", None)) == count


def scribe_of(app: Server) -> int:
    recorder = app.core.recorder
    assert recorder is not None
    assert recorder._scribe is not None
    return recorder._scribe._process.pid


async def test_a_writer_that_is_killed_is_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    app = make_app(Receipts(folder, on_full="continue"))
    async with Client(app) as client:
        for _ in range(3):
            for _ in range(50):
                await client.call_tool("add", {"a": 1, "b": 2})
            before = scribe_of(app)
            os.kill(before, signal.SIGKILL)
            await eventually(lambda before=before: scribe_of(app) != before)
            await eventually(lambda: not app.core.recorder._full)
        await client.call_tool("add", {"a": 1, "b": 2})
    held = verified(folder)
    begun = {record["call"] for record in held if record["kind"] == "begin"}
    ended = {record["call"] for record in held if record["kind"] == "end"}
    assert begun == ended
    lost = sum(record["calls"] for record in held if record["kind"] == "gap")
    assert len(begun) + lost >= 151


@pytest.mark.parametrize("stopping", [False, True])
async def test_what_was_handed_over_is_written_if_the_writer_is_gone_when_the_server_stops(
    tmp_path: Path, stopping: bool
) -> None:
    folder = tmp_path / "receipts"
    app = make_app(Receipts(folder))
    async with Client(app) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        before, recorder = scribe_of(app), app.core.recorder
        os.kill(before, signal.SIGSTOP)
        await client.call_tool("add", {"a": 1, "b": 2})
        recorder._hand_over()
        os.kill(before, signal.SIGKILL)
        if not stopping:
            await eventually(lambda: recorder._full)  # another one is started a moment later
    assert calls_of(verified(folder)) == [("add", "result", None)] * 2


async def test_digests_are_salted_by_one_key_even_if_it_is_replaced_and_the_writer_dies(
    tmp_path: Path,
) -> None:
    folder, key = tmp_path / "receipts", tmp_path / "receipts.key"
    app = make_app(Receipts(folder))
    sent = [{"text": "x" * size} for size in (1, 10_000)]
    async with Client(app, telemetry=False, protocol="2025-11-25") as client:
        for arguments in sent:
            await client.call_tool("large", arguments)
        before, recorder = scribe_of(app), app.core.recorder
        rotate(key)
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: scribe_of(app) != before and not recorder._full)
        for arguments in sent:
            await client.call_tool("large", arguments)
    held = records(folder)
    old = json.loads((folder / "0000000000000000.log").read_bytes().partition(b"\n")[0])["key"]
    Log(folder, load_keys([old])).verify()
    begun = [record for record in held if record.get("name") == "large"]
    assert len(begun) == 4
    for record, arguments in zip(begun, sent * 2, strict=True):
        salt, _ = salts_of(key, record["call"], folder)
        params = json.dumps({"name": "large", "arguments": arguments}, separators=(",", ":"))
        assert sha256(salt + params.encode()).hexdigest() == record["arguments"]


async def test_a_durable_call_that_ends_after_its_log_is_closed_does_not_wait(
    tmp_path: Path,
) -> None:
    recorder = Receipts(tmp_path, durable=True).recorder("server", "closed")
    await recorder.start()
    caller = Caller(VERSIONS["2025-11-25"], None, ClientCapabilities())
    call = Call(1, "tools/call", None, b"{}", caller)
    recorder.begin(call)
    await recorder.stop()
    recorder.ended(call, "result", b"{}")
    with pytest.raises(McpError, match="could not be recorded: the log is closed"):
        await recorder.commit()
    assert len(unfinished(tmp_path)) == 1


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


async def test_workers_write_one_log(tmp_path: Path) -> None:
    folder, port = tmp_path / "receipts", free_port()
    program = [sys.executable, "-m", "tests.receipts.kill_server", str(folder)]
    with started([*program, "workers", str(port)]) as server:
        try:
            await eventually(lambda: is_open(port))
            for _ in range(3):
                async with Client(f"http://127.0.0.1:{port}/mcp", connect_timeout=30) as client:
                    await asyncio.gather(
                        *(client.call_tool("add", {"a": n, "b": 1}) for n in range(60))
                    )
        finally:
            server.terminate()
    held = verified(folder)
    assert sum(record["kind"] == "start" for record in held) == 3
    assert sum(record["kind"] == "stop" for record in held) == 3
    assert calls_of(held).count(("add", "result", None)) == 180


async def test_processes_that_write_together_make_one_chain(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    program = [sys.executable, "-m", "tests.receipts.kill_server", str(folder)]
    servers = [started(program) for _ in range(3)]
    for server in servers:
        ask(server, *(added(number) for number in range(1, 1001)))
    for server in servers:
        assert server.stdout is not None
        for _ in range(1000):
            server.stdout.readline()
        server.communicate()
    held = verified(folder)
    assert calls_of(held).count(("add", "result", None)) == 3000
    runs = [record["call"][:12] for record in held if "call" in record]
    assert len(set(runs)) == 3


# When it cannot be written


@asynccontextmanager
async def full_disk(app: Server, folder: Path) -> AsyncIterator[None]:
    """Let no file of the writer grow, as on a full disk."""
    pid = scribe_of(app)
    usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    size = max(path.stat().st_size for path in folder.glob("*.log"))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 150, usual[1]))  # in the middle of a line
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize("durable", [False, True])
async def test_calls_are_refused_while_the_disk_is_full(
    tmp_path: Path, durable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder, refusals = tmp_path / "receipts", list[str]()
    app = make_app(Receipts(folder, durable=durable, sign_every=0.1))
    async with Client(app) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        recorder = app.core.recorder
        await eventually(lambda: (folder / "checkpoint").exists())

        async def is_refused() -> bool:
            try:
                await client.call_tool("add", {"a": 1, "b": 2})
            except McpError as error:
                refusals.append(error.message)
                return "The call cannot be recorded" in error.message
            return False

        async with full_disk(app, folder):
            await eventually(is_refused)
            assert "File too large" in recorder._reason
        assert f"{folder}: " in caplog.text
        assert not [text for text in refusals if str(tmp_path) in text], "callers see no path"
        await eventually(lambda: not recorder._full)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert not unfinished(folder)
    assert calls_of(verified(folder))[-1] == ("add", "result", None)


async def test_calls_are_refused_while_the_folder_is_away(tmp_path: Path) -> None:
    """Its files are open, so that writing to them would go on, without anything to show for it."""
    folder, elsewhere = tmp_path / "receipts", tmp_path / "elsewhere"
    app = make_app(Receipts(folder, sign_every=0.1))
    async with Client(app) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        recorder = app.core.recorder
        await eventually(lambda: (folder / "checkpoint").exists())

        async def is_refused() -> bool:
            try:
                await client.call_tool("add", {"a": 1, "b": 2})
            except McpError as error:
                return "The call cannot be recorded" in error.message
            return False

        folder.rename(elsewhere)
        await eventually(is_refused)
        folder.mkdir()
        (folder / "lock").touch()
        await eventually(lambda: "another folder" in recorder._reason)
        (folder / "lock").unlink()
        folder.rmdir()
        elsewhere.rename(folder)
        await eventually(lambda: not recorder._full)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert not unfinished(folder)
    assert calls_of(verified(folder))[-1] == ("add", "result", None)


async def test_calls_go_on_while_the_disk_is_full_and_the_gap_is_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "receipts"
    app = make_app(Receipts(folder, on_full="continue", durable=True, sign_every=0.1))
    async with Client(app) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        recorder = app.core.recorder
        async with full_disk(app, folder):
            for _ in range(20):
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert recorder._full
            assert app.core.counters()["receipts_up"] == 0
        await eventually(lambda: not recorder._full)
        await client.call_tool("add", {"a": 1, "b": 2})
        counted = app.core.counters()
        assert counted["receipts_up"] == 1
    held = verified(folder)
    (gap,) = [record for record in held if record["kind"] == "gap"]
    assert gap["calls"] + calls_of(held).count(("add", "result", None)) == 22
    assert gap["calls"] == counted["calls_unrecorded"] > 0
    assert "File too large" in gap["reason"]
    assert "calls are not recorded" in caplog.text


async def test_what_waits_to_be_written_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "receipts"
    app = make_app(Receipts(folder, queue=100_000))
    async with Client(app) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        pid, recorder = scribe_of(app), app.core.recorder
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(
                McpError, match=r"more is waiting to be written than `Receipts.queue`"
            ):
                for _ in range(5000):
                    await client.call_tool("add", {"a": 1, "b": 2})
                    await asyncio.sleep(0)
            assert 100_000 < recorder._scribe.waiting < 400_000
        finally:
            os.kill(pid, signal.SIGCONT)
        await eventually(lambda: not recorder._full)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    verified(folder)


async def test_a_server_whose_log_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    app = make_app(tmp_path / "file")
    with pytest.raises(Unusable, match=r"receipts cannot be written: .*file"):
        async with app.running():
            pass
    (tmp_path / "receipts.key").write_text("nonsense")
    with pytest.raises(Unusable, match="the key of the receipts cannot be used"):
        async with make_app(tmp_path / "receipts").running():
            pass


def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`on_full` is 'wait'"):
        Receipts(tmp_path, on_full="wait")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be positive"):
        Receipts(tmp_path, queue=0)


async def test_a_server_without_receipts_loads_nothing_of_them() -> None:
    program = (
        "import asyncio, sys\nfrom mcpearl import Client, Server\n"
        "async def main():\n    async with Client(Server('a')) as client: await client.ping()\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'receipts' in name or 'recording' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_the_log_is_not_for_other_users(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"

    async def main() -> None:
        async with Client(make_app(folder)) as client:
            await client.ping()

    asyncio.run(main())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "receipts.key").stat().st_mode & 0o777 == 0o600
    logging.getLogger("mcpearl.receipts").debug("checked")
