"""The component measures: single steps of the hot path, each as operations per second.

One function per component. It builds what it needs, checks once that the step returns the right
answer, and hands the step to `rate`. A component that cannot be imported is shown as not measured.
"""

import asyncio
import json
import subprocess
import time
import timeit
from collections.abc import Callable
from typing import Any, cast

import msgspec

from bench.environments import SERVERS, clean_environ
from bench.peers import MCP, interpreter
from bench.progress import say
from bench.results import Results, WrongAnswer

MESSAGE = (
    b'{"jsonrpc":"2.0","id":42,"method":"tools/call",'
    b'"params":{"name":"add","arguments":{"a":1,"b":2}}}'
)
ARGUMENTS = b'{"a":1,"b":2}'
WRONG_ARGUMENTS = b'{"a":1,"b":"two"}'
RESULT = (
    b'{"jsonrpc":"2.0","id":42,"result":{"content":[{"type":"text","text":"3"}],'
    b'"structuredContent":{"result":3}}}'
)


UPDATED = (
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated",'
    b'"params":{"uri":"bench://resource"}}'
)
RESOURCES = 1_000


class CountingOutlet:
    """A subscriber's outlet that counts its messages, with no wire behind it."""

    __slots__ = ("last", "sent")

    def __init__(self) -> None:
        self.last = b""
        self.sent = 0

    def send(self, message: bytes) -> None:
        self.last = message
        self.sent += 1


class BareEnvelope(msgspec.Struct, gc=False):
    """The least that has to be read of a request."""

    jsonrpc: str
    id: int | str
    method: str
    params: msgspec.Raw


def rate(statement: str, count: int, **names: Any) -> float:
    """Executions of a statement per second."""
    timer = timeit.Timer(statement, globals=names)
    timer.timeit(count // 5)  # to warm up
    return count / timer.timeit(count)


def expect(right: bool, what: str) -> None:
    if not right:
        raise WrongAnswer(what)


def _refuses(decode: Callable[[bytes], Any], error: type[Exception]) -> bool:
    try:
        decode(WRONG_ARGUMENTS)
    except error:
        return True
    return False


def parse(count: int) -> float:
    """Bytes of a `tools/call` request to an envelope."""
    from mcpearl.protocol.codec import decode

    envelope = decode(MESSAGE)
    expect((envelope.id, envelope.method) == (42, "tools/call"), f"parse returned {envelope}")
    return rate("decode(message)", count, decode=decode, message=MESSAGE)


def parse_bare(count: int) -> float:
    """The same with msgspec alone: the floor."""
    decode = msgspec.json.Decoder(BareEnvelope).decode
    return rate("decode(message)", count, decode=decode, message=MESSAGE)


def parse_mcp(count: int) -> float:
    """The same in the official Python SDK, in its environment."""
    done = subprocess.run(
        [interpreter(MCP), str(SERVERS / "mcp_parse.py"), MESSAGE.decode(), str(count)],
        capture_output=True,
        text=True,
        env=clean_environ(),
        check=False,
    )
    expect(done.returncode == 0, f"the parse of mcp failed: {done.stderr[-200:]}")
    return float(json.loads(done.stdout))


def decode_arguments(count: int) -> float:
    """Raw arguments into the arguments of a function, by its signature."""
    from mcpearl.schema import ArgumentsError, compile_signature

    def add(a: int, b: int) -> int:
        return a + b

    signature = compile_signature(add)
    expect(signature.call(signature.decode(ARGUMENTS), None) == 3, "the signature did not return 3")
    expect(_refuses(signature.decode, ArgumentsError), "the signature accepted wrong arguments")
    return rate("decode(arguments)", count, decode=signature.decode, arguments=ARGUMENTS)


def validate_schema(count: int) -> float:
    """Raw arguments against a JSON Schema given by hand."""
    from mcpearl.schema import SchemaMismatch, compile_schema

    integer = {"type": "integer"}
    schema = {
        "type": "object",
        "properties": {"a": integer, "b": integer},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    check = compile_schema(schema, where="bench").check_json
    expect(check(ARGUMENTS) == {"a": 1, "b": 2}, "the validator changed the arguments")
    expect(_refuses(check, SchemaMismatch), "the validator accepted wrong arguments")
    return rate("check(arguments)", count, check=check, arguments=ARGUMENTS)


def pending(count: int) -> float:
    """Adding a request to the table of pending ones, and resolving it."""
    from mcpearl.protocol.pending import Pending

    table, waiter = Pending(), object()
    entry = table.add("tools/call", waiter, now=0.0, timeout=60.0)
    expect(table.resolve(entry.id) is entry and not table, "pending returned another entry")
    for _ in range(100):  # as on a busy connection
        table.add("tools/call", waiter, now=0.0, timeout=60.0)
    return rate(
        "table.resolve(table.add('tools/call', waiter, 0.0, 60.0).id)",
        count,
        table=table,
        waiter=waiter,
    )


def encode_result(count: int) -> float:
    """A tool result, from the struct to the bytes of the answer."""
    from mcpearl.protocol.codec import encode_result
    from mcpearl.types.base import encode
    from mcpearl.types.content import TextContent
    from mcpearl.types.tool_calls import CallToolResult

    result = CallToolResult(content=[TextContent(text="3")], structured_content={"result": 3})
    encoded = encode_result(42, encode(result))
    expect(encoded == RESULT, f"encode returned {encoded!r}")
    return rate(
        "encode_result(42, encode(result))",
        count,
        encode_result=encode_result,
        encode=encode,
        result=result,
    )


def registry_read(count: int) -> float:
    """A read of one of many resources, through the registry to its function and back."""
    return asyncio.run(_registry_read(count))


async def _registry_read(count: int) -> float:
    from mcpearl import Context, Server
    from mcpearl.protocol.events import Call

    async def contents() -> str:
        return "text"

    app = Server("bench", version="1.0.0")
    for number in range(RESOURCES):
        app.add_resource(f"bench://{number}", contents, name=str(number))
    uri = f"bench://{RESOURCES // 2}"
    # The function does not use its context, so the context needs no connection.
    call = Call(1, "resources/read", None, b"{}", cast(Any, None))
    ctx = Context(call, cast(Any, None), app.core)
    read = app.handler.read_resource
    [content] = cast(Any, await read(uri, ctx)).contents
    expect((content.uri, content.text) == (uri, "text"), f"the registry returned {content}")
    started = time.perf_counter()
    for _ in range(count):
        await read(uri, ctx)
    return count / (time.perf_counter() - started)


def notify(count: int) -> float:
    """Messages per second to many subscribers of one resource, up to their outlets."""
    return _notify(count, subscribers=100)


def notify_one(count: int) -> float:
    """The same with one subscriber, where nothing is shared."""
    return _notify(count, subscribers=1)


def _notify(count: int, subscribers: int) -> float:
    from mcpearl.runtime.budget import Budget
    from mcpearl.server.subscriptions import Subscriber, Subscriptions

    uri, index = "bench://resource", Subscriptions()
    outlets = [CountingOutlet() for _ in range(subscribers)]
    for outlet in outlets:
        index.subscribe(Subscriber(outlet, Budget().account()), uri)
    updates = max(count // subscribers, 1)
    expect(index.resource_updated(uri) == subscribers, "not every subscriber was notified")
    expect(all(outlet.last == UPDATED for outlet in outlets), "a subscriber got a wrong message")
    figure = rate("update(uri)", updates, update=index.resource_updated, uri=uri) * subscribers
    expected = 1 + updates // 5 + updates  # the first, the warm-up, and those that were timed
    expect(all(outlet.sent == expected for outlet in outlets), "updates were lost")
    return figure


COMPONENTS: tuple[tuple[str, str, Callable[[int], float]], ...] = (
    ("parse", "mcpearl", parse),
    ("parse", "mcp", parse_mcp),
    ("parse", "msgspec", parse_bare),
    ("decode_arguments", "mcpearl", decode_arguments),
    ("validate_schema", "mcpearl", validate_schema),
    ("pending", "mcpearl", pending),
    ("encode_result", "mcpearl", encode_result),
    ("registry_read", "mcpearl", registry_read),
    ("notify", "mcpearl", notify),
    ("notify_one", "mcpearl", notify_one),
)


def run(results: Results, *, quick: bool) -> None:
    """Measure every component, in rounds over all of them."""
    rounds, count = (1, 5_000) if quick else (7, 300_000)
    components = list(COMPONENTS)
    for number in range(1, rounds + 1):
        say(f"components: round {number} of {rounds}")
        for entry in list(components):
            metric, column, component = entry
            try:
                with results.noting(f"component {metric}"):
                    results.add_round(metric, column, component(count))
            except ImportError as error:
                results.missing.append(f"component {metric} ({error.msg})")
                components.remove(entry)
