"""Both protocol ends: messages, one a line, to servers and clients of each era.

Nothing raises; whatever is sent back is well-formed JSON-RPC with the peer's id; calls in flight are
exactly those that were admitted and not answered; and the end works as before afterwards.
"""

import json
from typing import Any

from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.events import Call, Cancel, Event, Many, Opened, Ready, Reply
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.types import PaginatedRequestParams, RequestParams
from mcpearl.types.methods import NOTIFICATIONS, REQUESTS
from tests.fuzz.target import Target, require
from tests.protocol.ends import (
    META,
    a_client,
    a_client_session,
    a_modern_client,
    a_server,
    a_session,
    assert_client_works,
    assert_works,
)

LIMITS = Limits(max_in_flight_hard=4, max_batch=8)


def _ends() -> list[ServerEnd | ClientEnd]:
    listing = a_modern_client(limits=LIMITS)
    listing.request("tools/list", PaginatedRequestParams(), None, 0.0, 60.0)
    asking = a_session("2025-03-26", limits=LIMITS)
    asking.ask("roots/list", RequestParams(), None, 0.0, 60.0)
    return [
        a_server(limits=LIMITS),
        a_session(limits=LIMITS),
        asking,
        a_server(versions=("2026-07-28",), limits=LIMITS),
        a_client(limits=LIMITS),
        a_client_session(limits=LIMITS),
        a_client_session("2025-03-26", limits=LIMITS),
        listing,
    ]


def check(data: bytes) -> None:
    messages = data.split(b"\n")[:12]
    for end in _ends():
        for message in messages:
            _look_at(end, end.receive(message))
            require(len(end.in_flight) <= LIMITS.max_in_flight_hard, "more calls than allowed")
        for call in list(end.in_flight.values()):
            end.drop(call)
    session = a_session()
    client = a_client_session()
    for message in messages:
        session.receive(message)
        client.receive(message)
    for end in (session, client):
        for call in list(end.in_flight.values()):
            end.drop(call)
    assert_works(session)
    assert_client_works(client)


def _look_at(end: ServerEnd | ClientEnd, event: Event) -> None:
    if isinstance(event, Many):
        require(len(event.events) <= LIMITS.max_batch + 1, "a batch has more events than messages")
        for inner in event.events:
            _look_at(end, inner)
    if isinstance(event, Call):
        require(end.is_open(event), "a call that was admitted is not in flight")
        require(type(event.id) in (int, str), "the id of a call is not one")
    if isinstance(event, Cancel):
        require(not end.is_open(event.call), "a cancelled call is in flight")
    if isinstance(event, Reply | Opened):
        _well_formed(event.message)
    if isinstance(event, Ready):
        require(isinstance(end, ServerEnd) and end.caller, "ready without a caller")


def _well_formed(message: bytes) -> None:
    require(b"\n" not in message, "an answer has a line break")
    value: Any = json.loads(message)
    for part in value if isinstance(value, list) else [value]:
        require(part["jsonrpc"] == "2.0", "an answer is not JSON-RPC 2.0")
        require(("result" in part) != ("error" in part), "neither or both of result and error")
        require(part["id"] is None or type(part["id"]) in (int, str), "the id of an answer")
        if "error" in part:
            require(type(part["error"]["code"]) is int, "the code of an error")
            require(len(part["error"]["message"]) < 2048, "an error repeats too much of its cause")


def read(data: bytes) -> None:
    for end in (a_session(), a_client_session("2025-03-26")):
        end.receive(data)


WORDS = (
    *(f'"{name}"'.encode() for name in (*REQUESTS, *NOTIFICATIONS, *META)),
    b'{"jsonrpc":"2.0","id":1,"method":',
    b'"params":{',
    b'"_meta":{',
    b'"result":{',
    b'"error":{"code":-1,"message":"m"}',
    b"\n",
    b'"requestId":1',
    b"null",
)
TARGET = Target("ends", check, WORDS, read)
