"""The HTTP requests that are sent, and the checks of their answers.

Every call adds numbers of four digits, so that all requests of a kind have the same length, and all
answers too.
"""

from dataclasses import dataclass

import msgspec

from bench.results import WrongAnswer
from bench.stdio import ToolResult

LEGACY, MODERN = "2025-11-25", "2026-07-28"
STEPS = 10
TURNS = range(1000, 1064)  # the numbers the requests of a run go through, over and over
_CLIENT = {"name": "bench", "version": "1.0.0"}


@dataclass(frozen=True)
class Request:
    """One POST to the endpoint."""

    headers: dict[str, str]
    body: bytes

    def without_body(self) -> "Request":
        """The same headers for a request that has no body."""
        return Request(self.headers, b"")

    def encode(self, address: str, method: str = "POST") -> bytes:
        """The bytes of the request on the wire."""
        headers = {"Host": address, **self.headers, "Content-Length": str(len(self.body))}
        lines = [
            f"{method} /mcp HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class Message(msgspec.Struct):
    """The members of an answer that are checked."""

    id: int | None = None
    method: str = ""
    result: ToolResult | None = None


def _post(version: str, message: dict[str, object], **headers: str) -> Request:
    common = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
    }
    return Request(common | headers, msgspec.json.encode({"jsonrpc": "2.0"} | message))


def initialize() -> Request:
    """Begin a session."""
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
    return _post(LEGACY, {"id": 0, "method": "initialize", "params": params})


def in_session(session: str | None, method: str, params: dict[str, object], id: int) -> Request:
    """A request of 2025-11-25; without a session if the server has none."""
    headers = {} if session is None else {"Mcp-Session-Id": session}
    return _post(LEGACY, {"id": id, "method": method, "params": params}, **headers)


def initialized(session: str | None) -> Request:
    """The notification that completes the handshake."""
    headers = {} if session is None else {"Mcp-Session-Id": session}
    return _post(LEGACY, {"method": "notifications/initialized"}, **headers)


def modern(method: str, params: dict[str, object], id: int, name: str | None = None) -> Request:
    """A request of 2026-07-28, which belongs to no session."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": _CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    given = params.get("_meta", {})
    assert isinstance(given, dict)
    headers = {"Mcp-Method": method} | ({} if name is None else {"Mcp-Name": name})
    message = {"id": id, "method": method, "params": params | {"_meta": meta | given}}
    return _post(MODERN, message, **headers)


def add(number: int) -> dict[str, object]:
    """Parameters of the call whose answer is eight times the number."""
    return {"name": "add", "arguments": {"a": number, "b": 7 * number}}


def steps(number: int) -> dict[str, object]:
    """Parameters of a call that reports its progress ten times."""
    meta = {"progressToken": number}
    return {"name": "steps", "arguments": {"count": STEPS}, "_meta": meta}


def messages(kind: str, body: bytes) -> list[Message]:
    """The messages of an answer: one as JSON, or several as events."""
    if not kind.startswith("text/event-stream"):
        return [msgspec.json.decode(body, type=Message)]
    lines = body.replace(b"\r\n", b"\n").split(b"\n")
    found = [line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")]
    return [msgspec.json.decode(data, type=Message) for data in found if data]


def check_sum(number: int, kind: str, body: bytes) -> None:
    """Raise unless the answer is one message with the sum as data and text."""
    _check_result(messages(kind, body), 8 * number, notices=0)


def check_steps(number: int, kind: str, body: bytes) -> None:
    """Raise unless the answer is ten notifications and the result."""
    _check_result(messages(kind, body), STEPS, notices=STEPS)


def _check_result(found: list[Message], expected: int, notices: int) -> None:
    *before, last = found
    result = last.result
    right = (
        result is not None
        and result.structured_content is not None
        and result.structured_content.result == expected
        and result.content[0].text == str(expected)
    )
    notified = [message.method for message in before]
    if not right or notified != ["notifications/progress"] * notices:
        raise WrongAnswer(f"{notices} notifications and {expected} were expected, not {found}")
