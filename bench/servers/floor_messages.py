"""What both floors do with a message: read the envelope, add, and encode the answer.

The params stay raw until the method is known, as in any server that has more than one method.
"""

from typing import Any

import msgspec

INITIALIZED = "notifications/initialized"
INITIALIZE_RESULT: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "floor", "version": "1.0.0"},
}


class Envelope(msgspec.Struct):
    jsonrpc: str
    method: str
    id: int | str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Arguments(msgspec.Struct):
    a: int
    b: int


class Params(msgspec.Struct):
    name: str
    arguments: Arguments


class Text(msgspec.Struct):
    type: str
    text: str


class Sum(msgspec.Struct):
    result: int


class ToolResult(msgspec.Struct, rename="camel"):
    content: list[Text]
    structured_content: Sum


class Answer(msgspec.Struct):
    jsonrpc: str
    id: int | str | None
    result: ToolResult | dict[str, Any]


read = msgspec.json.Decoder(Envelope).decode
_read_params = msgspec.json.Decoder(Params).decode
_encode = msgspec.json.Encoder().encode


async def add(a: int, b: int) -> int:
    return a + b


def initialized(envelope: Envelope) -> bytes:
    """The answer to `initialize`."""
    return _encode(Answer("2.0", envelope.id, INITIALIZE_RESULT))


async def called(envelope: Envelope) -> bytes:
    """The answer to a call."""
    arguments = _read_params(envelope.params).arguments
    total = await add(arguments.a, arguments.b)
    return _encode(Answer("2.0", envelope.id, ToolResult([Text("text", str(total))], Sum(total))))
