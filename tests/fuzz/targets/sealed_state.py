"""Sealed state: only what was sealed is opened, for the same principal and call, and before its end."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from mcpearl.protocol.seal import Binding, Sealer, StateRefused, binding
from tests.fuzz.target import Broken, Target, require

SEALER = Sealer([b"k" * 32, b"o" * 32], ttl=60.0, random_bytes=lambda count: b"n" * count)
BOUND = Binding("alice", "call")
GENUINE = SEALER.seal(b'{"answers":[1]}', BOUND, 0.0)


def check(data: bytes) -> None:
    token = data.decode("utf-8", "replace")
    _open(token)
    _open(urlsafe_b64encode(data).decode())
    _open(GENUINE[: len(GENUINE) // 2] + token + GENUINE[len(GENUINE) // 2 + len(token) :])
    raw = bytearray(urlsafe_b64decode(GENUINE))
    for place, byte in zip(data[::2], data[1::2], strict=False):
        raw[place % len(raw)] ^= byte
    _open(urlsafe_b64encode(raw).decode())
    sealed = SEALER.seal(b'"%b"' % data.hex().encode(), BOUND, 0.0)
    require(
        bytes(SEALER.open(sealed, BOUND, 59.0)) == b'"%b"' % data.hex().encode(), "what was sealed"
    )
    for other, now in ((Binding("bob", "call"), 0.0), (Binding("alice", "x"), 0.0), (BOUND, 61.0)):
        try:
            SEALER.open(sealed, other, now)
        except StateRefused:
            continue
        raise Broken("a state was opened for another principal or call, or after its end")


def _open(token: str) -> None:
    try:
        payload = SEALER.open(token, BOUND, 0.0)
    except StateRefused:
        return
    require(token == GENUINE, "a state was opened that was not sealed")
    require(bytes(payload) == b'{"answers":[1]}', "another state was opened")


def check_binding(data: bytes) -> None:
    from mcpearl.protocol.errors import McpError

    try:
        binding("alice", "tools/call", "x", data)
    except McpError:
        pass


def both(data: bytes) -> None:
    check(data)
    check_binding(data)


TARGET = Target("sealed-state", both, (GENUINE[:8].encode(), GENUINE.encode(), b"=", b"-_"))
