"""Every parser of what strangers send takes time in proportion to its input, also for the worst.

The work for an input and for one sixteen times as long are compared. Linear work grows sixteenfold,
quadratic work 256-fold; up to fortyfold is taken for linear. What is compared is the least processor
time of several tries, each of which repeats the work often enough to be measured.
"""

import gc
import json
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from mcpearl.auth.client.challenge import read_demand
from mcpearl.auth.server import jose
from mcpearl.auth.server.verifier import TokenRefused
from mcpearl.net.sse import EventReader
from mcpearl.protocol import codec
from mcpearl.protocol.errors import Malformed, McpError
from mcpearl.protocol.framing import ContentLengthFramer, DetectingFramer, NewlineFramer
from mcpearl.protocol.nesting import is_too_deep
from mcpearl.protocol.routes import TO_SERVER
from mcpearl.protocol.seal import Binding, Sealer
from mcpearl.receipts.keys import SigningKey
from mcpearl.receipts.log import header_line
from mcpearl.receipts.verifier import Discrepancy, Log, Proof, SignedHead, VerifierKey, leaf_hash
from mcpearl.schema.errors import SchemaError, SchemaMismatch
from mcpearl.schema.given import compile_schema
from mcpearl.server.registry.normal_uri import normal_uri
from mcpearl.server.registry.pagination import Registered
from mcpearl.server.registry.uri_template import UriTemplate
from mcpearl.transports.mirrored_headers import decode_value
from mcpearl.transports.websocket.deflate import BoundedDeflate, ServerDeflate
from mcpearl.types.base import decode_any

KIB, MIB = 1024, 1024 * 1024
FACTOR = 16
ALLOWED = 40
REFUSALS = (
    ValueError,
    TokenRefused,
    McpError,
    Malformed,
    SchemaError,
    SchemaMismatch,
    Discrepancy,
    RecursionError,
)

Work = Callable[[Any], object]


def fed(make: Callable[[int], Any], step: int = 4 * KIB) -> Work:
    """Feed an incremental parser in pieces."""

    def work(data: bytes) -> None:
        parser = make(MIB)
        for start in range(0, len(data), step):
            parser.feed(data[start : start + step])

    return work


def repeated(text: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda size: before + text * (size // len(text)) + after


def raw(text: bytes, before: bytes = b"", after: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: before + text * (size // len(text)) + after


def challenge(header: str) -> object:
    return read_demand({"www-authenticate": header})


def called(params: bytes) -> object:
    return TO_SERVER["tools/list"].decode(params)


def batched(message: bytes) -> object:
    return codec.decode_batch(message, 1000)


def inflated(frames: list[Frame]) -> None:
    _, deflate = ServerDeflate().process_request_params([], [])
    assert isinstance(deflate, BoundedDeflate)
    for frame in frames:
        deflate.decode(frame, max_size=16 * MIB)


def deflated(pieces: int) -> Callable[[int], list[Frame]]:
    """Compress numbers into a message of so many frames for each KiB."""

    def frames(size: int) -> list[Frame]:
        data = b",".join(b"%d" % number for number in range(size // 6))
        packer = zlib.compressobj(3, wbits=-15)
        packed = (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
        count = max(1, pieces * size // KIB)
        step = -(-len(packed) // count)
        parts = [packed[start : start + step] for start in range(0, len(packed), step)]
        last = len(parts) - 1
        return [
            Frame(Opcode.CONT if i else Opcode.TEXT, part, i == last, rsv1=i == 0)
            for i, part in enumerate(parts)
        ]

    return frames


SEALER = Sealer([b"k" * 32], max_size=10 * MIB)
BOUND = Binding("alice", "tools/call")
LISTING: Registered[Any] = Registered("tools", "scope", 10)
UNIQUE = compile_schema({"type": "array", "uniqueItems": True}, where="unique")
PATTERN = compile_schema({"pattern": "^(a+)+$"}, where="pattern")
ANY_OF = compile_schema({"items": {"anyOf": [{"type": "string"}, {"minimum": 0}]}}, where="any")
MANY = UriTemplate("{+a}x{+b}y{+c}{?d*}")
ONE = UriTemplate("note://{name}/{+path}")


def sealed(size: int) -> str:
    return SEALER.seal(b'"%b"' % (b"a" * size), BOUND, 0.0)


def properties(size: int) -> dict[str, Any]:
    return {"properties": {f"p{n}": {"type": "string"} for n in range(size)}}


def head_of(note: bytes) -> object:
    return SignedHead.parse(note)


def proof_of(data: bytes) -> object:
    return Proof.parse(data)


def verified(data: bytes) -> None:
    """Verify a folder with one file of receipts and its heads."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "0000000000000000.log").write_bytes(RECEIPTS + data)
        (folder / "0000000000000000.heads").write_bytes(data if data[:1] == b"a" else b"")
        Log(folder, [VerifierKey(RECEIPTS_KEY.vkey)]).verify()


RECEIPTS_KEY = SigningKey("a", bytes(32))
RECEIPTS = header_line("a", 0, bytes(32), [], RECEIPTS_KEY.vkey)


def chained(size: int) -> bytes:
    """Make records that follow each other."""
    previous, lines = bytes(32), []
    for number in range(size // 128):
        record = b'{"kind":"key%d","padding":"%b"}\n' % (number, b"x" * 32)
        previous = leaf_hash(previous + record)
        lines.append(previous.hex().encode() + b" " + record)
    return b"".join(lines)


# name: (how an input of a size is made, what reads it, the longest input its bound lets in)
PARSERS: dict[str, tuple[Callable[[int], Any], Work, int]] = {
    "challenge: a token": (repeated("a", "Bearer ", "("), challenge, 8 * KIB),
    "challenge: tokens": (repeated("a(", "Bearer "), challenge, 8 * KIB),
    "challenge: parameters": (repeated("a=b,", "Bearer "), challenge, 8 * KIB),
    "challenge: blanks": (repeated(" \t", "Bearer a", "="), challenge, 8 * KIB),
    "challenge: quotes": (repeated('"', "Bearer "), challenge, 8 * KIB),
    "challenge: open quotes": (repeated('a="', "Bearer "), challenge, 8 * KIB),
    "challenge: escapes": (repeated('\\"', 'Bearer a="'), challenge, 8 * KIB),
    "SSE: short lines": (raw(b"data:ab\n", after=b"\n"), fed(EventReader), MIB),
    "SSE: one line": (raw(b"a", b"data:"), fed(EventReader), MIB),
    "SSE: line ends": (raw(b"\r"), fed(EventReader), MIB),
    "SSE: ids": (raw(b"id:1\ndata:\n\n"), fed(EventReader), MIB),
    "framing: one line": (raw(b"a"), fed(NewlineFramer), MIB),
    "framing: short lines": (raw(b"{}\n"), fed(NewlineFramer), MIB),
    "framing: no headers": (raw(b"a: b\r\n"), fed(ContentLengthFramer), MIB),
    "framing: headers": (raw(b"Content-Length: 1\r\n\r\n1"), fed(ContentLengthFramer), MIB),
    "framing: blanks": (raw(b" \r\n"), fed(DetectingFramer), MIB),
    "URI: escapes": (repeated("%61%2f"), normal_uri, 8 * KIB),
    "URI: beyond ASCII": (repeated("é"), normal_uri, 8 * KIB),
    "URI: bare percents": (repeated("%"), normal_uri, 8 * KIB),
    "template: ambiguous": (repeated("xy"), MANY.match, 8 * KIB),
    "template: almost": (repeated("x", after="?"), MANY.match, 8 * KIB),
    "template: escapes": (repeated("%61/", "note://a/"), ONE.match, 8 * KIB),
    "schema: compiling": (properties, lambda s: compile_schema(s, where="s"), 4000),
    "schema: unique items": (
        lambda size: list(range(size)),
        lambda value: UNIQUE.check(value),
        32 * KIB,
    ),
    "schema: pattern": (repeated("a", after="!"), PATTERN.check, MIB),
    "schema: any of": (raw(b"1,", b"[", b"1]"), ANY_OF.check_json, MIB),
    "_meta: members": (
        lambda size: json.dumps({"_meta": {str(n): n for n in range(size // 8)}}).encode(),
        called,
        MIB,
    ),
    "_meta: small floats": (raw(b"1e-320,", b'{"_meta":{"a":[', b"1]}}"), called, MIB),
    "_meta: large floats": (
        raw(b"8.98846567431158e307,", b'{"_meta":{"a":[', b"1]}}"),
        called,
        MIB,
    ),
    "_meta: long number": (raw(b"9", b'{"_meta":{"a":', b"}}"), called, MIB),
    "JSON: long fraction": (raw(b"1", b"[0.", b"]"), decode_any, MIB),
    "JSON: many zeros": (raw(b"0", b"[0.", b"1]"), decode_any, MIB),
    "JSON: long exponent": (raw(b"0", b"[1e", b"1]"), decode_any, MIB),
    "JSON: short floats": (raw(b"1e-320,", b"[", b"1]"), decode_any, MIB),
    "JSON: the same key": (raw(b'"a":1,', b"{", b'"a":1}'), decode_any, MIB),
    "JSON: escapes": (raw(b"\\u00e9", b'["', b'"]'), decode_any, MIB),
    "message: ids": (raw(b'"id":1,', b"{", b'"jsonrpc":"2.0","method":"m"}'), codec.decode, MIB),
    "message: batch": (raw(b"{},", b"[", b"{}]"), batched, MIB),
    "nesting: deep": (raw(b"["), is_too_deep, MIB),
    "nesting: flat": (raw(b"[],", b"[" * 100, b"1" + b"]" * 100), is_too_deep, MIB),
    "nesting: waves": (raw(b"[" * 16 + b"]" * 16 + b",", b"[" * 99), is_too_deep, MIB),
    "nesting: strings": (raw(b'["["],', b"[" * 99), is_too_deep, MIB),
    "nesting: escapes": (raw(b'\\"', b"[" * 200 + b'"'), is_too_deep, MIB),
    "sealed state": (sealed, lambda text: SEALER.open(text, BOUND, 0.0), 256 * KIB),
    "sealed state: forged": (
        lambda size: sealed(size)[:-4] + "AAAA",
        lambda text: SEALER.open(text, BOUND, 0.0),
        256 * KIB,
    ),
    "mirrored header": (repeated("A", "=?base64?", "?="), decode_value, 64 * KIB),
    "cursor": (repeated("MTIz"), lambda text: LISTING.page(text), MIB),
    "JOSE: one part": (repeated("A"), jose.read, 16 * KIB),
    "JOSE: many parts": (repeated("."), jose.read, 16 * KIB),
    "JOSE: a header": (repeated("e30", "e30.e30."), jose.read, 16 * KIB),
    "receipts: head": (raw(b"\n\n\xe2\x80\x94 a QQ=="), head_of, 64 * KIB),
    "receipts: signatures": (raw(b"\xe2\x80\x94 a QUJDREVG\n", b"a\n1\nAA\n\n"), head_of, 64 * KIB),
    "receipts: proof": (raw(b"AAAA\n", b"c2sp.org/tlog-proof@v1\nextra QQ==\n"), proof_of, MIB),
    "receipts: records": (chained, verified, MIB),
    "receipts: one line": (raw(b"a"), verified, MIB),
    "receipts: short lines": (raw(b"b\n"), verified, MIB),
    "receipts: heads": (raw(b"a\n\n"), verified, MIB),
    "receipts: torn head": (raw(b"a\n"), verified, MIB),
    "WebSocket: inflate": (deflated(0), inflated, MIB),
    "WebSocket: fragments": (deflated(8), inflated, 256 * KIB),
}


def seconds(work: Work, given: Any, times: int) -> float:
    """Measure the processor time of doing something a number of times.

    Without collections of garbage, which look at what all tests before have left.
    """
    gc.disable()
    try:
        begun = time.thread_time()
        for _ in range(times):
            try:
                work(given)
            except REFUSALS:
                pass
        return time.thread_time() - begun
    finally:
        gc.enable()


@pytest.mark.parametrize("parser", PARSERS)
def test_work_grows_as_its_input_does(parser: str) -> None:
    make, work, longest = PARSERS[parser]
    short, long = make(longest // FACTOR), make(longest)
    times = 1
    while seconds(work, short, times) < 0.002:
        times *= 2
    for _ in range(6):
        # Short and long alternately: both then meet the same load of the machine.
        least = min(seconds(work, short, times) for _ in range(3)) / times
        most = min(seconds(work, long, max(1, times // FACTOR)) for _ in range(3))
        growth = most / max(1, times // FACTOR) / least
        if growth <= ALLOWED:
            return
    pytest.fail(f"{FACTOR} times the input took {growth:.0f} times as long")


@pytest.mark.parametrize("number", ["1e-320", "8.98846567431158e307", "2.2250738585072011e-308"])
@pytest.mark.parametrize("read", [called, decode_any], ids=["_meta", "any"])
def test_no_float_costs_much_more_than_python_takes_for_it(number: str, read: Work) -> None:
    """Some decoders take twenty times as long for numbers at the edge of what there is."""
    count = 2000
    body = b'{"_meta":{"a":[%b]}}' % ",".join([number] * count).encode()
    for _ in range(6):
        plain = min(seconds(float, number, count) for _ in range(3))
        decoded = min(seconds(read, body, 1) for _ in range(3))
        if decoded <= 7 * plain:
            return
    pytest.fail(f"reading took {decoded / plain:.0f} times as long as `float` does")
