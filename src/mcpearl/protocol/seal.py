"""Seals what a server must remember between the rounds of one request into `requestState`.

The state passes through the client, so it is encrypted and authenticated, and bound to the principal,
the call and an expiry time. A state that was not made here, was changed, has expired, or belongs to
another caller or call is refused with the reason.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b
from os import urandom
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import LimitReached, McpError
from mcpearl.types.base import decode_any
from mcpearl.types.jsonrpc import INVALID_PARAMS

_KEY_BYTES = 32
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12
_UNKNOWN_KEY = "was not made by this server, or its key was rotated out"
_FOREIGN = (
    "was not made by this process; if several processes serve this address, give all of them the same "
    "`Server(state_keys=…)` or MCPEARL_STATE_KEYS"
)
_sorted = msgspec.json.Encoder(order="sorted")


class StateRefused(McpError):
    """A `requestState` was refused."""

    def __init__(self, reason: str) -> None:
        super().__init__(INVALID_PARAMS, f"requestState {reason}", {"reason": reason})


class Binding(Struct, frozen=True, array_like=True):
    """Digests of the caller and the call that a state is valid for."""

    principal: str
    call: str


class _Sealed(Struct, array_like=True):
    expires: float
    binding: Binding
    payload: Raw


_sealed_decoder = msgspec.json.Decoder(_Sealed)


def binding(principal: Any, method: str, name: str, arguments: Raw | bytes | None) -> Binding:
    """Digest the principal and the call. Arguments are compared by value, not by spelling."""
    try:
        values = decode_any(arguments) if arguments else {}
        call = _sorted.encode([method, name, values])
    except UNREADABLE as error:
        raise McpError(INVALID_PARAMS, f"The arguments cannot be read: {error}") from None
    return Binding(principal=_digest(_sorted.encode(principal)), call=_digest(call))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


class Unsealable(ValueError):
    """Bytes cannot be opened; the message says why."""


class KeyRing:
    """Encrypts with the first of its keys, decrypts with all of them.

    To rotate a key, put a new one in front and remove the old one once nothing is sealed with it.

    Args:
        keys: Keys of 32 bytes each; by default one random key.
        random_bytes: Where random bytes come from.
    """

    __slots__ = ("_ciphers", "_first", "_made_up", "_random_bytes")

    def __init__(
        self,
        keys: list[bytes] | None = None,
        random_bytes: Callable[[int], bytes] = urandom,
    ) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 20 ms, only when used

        self._random_bytes = random_bytes
        self._made_up = not keys
        self._ciphers: dict[bytes, AESGCM] = {}
        for key in keys or [random_bytes(_KEY_BYTES)]:
            if len(key) != _KEY_BYTES:
                raise ValueError(f"a state key must have {_KEY_BYTES} bytes, not {len(key)}")
            self._ciphers[blake2b(key, digest_size=_KEY_ID_BYTES).digest()] = AESGCM(key)
        self._first = next(iter(self._ciphers))

    def encrypt(self, plain: bytes, bound: bytes = b"") -> bytes:
        """Return sealed bytes; they can be opened only together with the same `bound`."""
        nonce = self._random_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self._first].encrypt(nonce, plain, self._first + bound)
        return self._first + nonce + sealed

    def decrypt(self, sealed: bytes, bound: bytes = b"") -> bytes:
        """Return what was sealed. Raises `Unsealable` with the reason."""
        from cryptography.exceptions import InvalidTag

        key_id, rest = sealed[:_KEY_ID_BYTES], sealed[_KEY_ID_BYTES:]
        cipher = self._ciphers.get(key_id)
        if cipher is None or len(rest) <= _NONCE_BYTES:
            raise Unsealable(_FOREIGN if self._made_up else _UNKNOWN_KEY)
        try:
            return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], key_id + bound)
        except InvalidTag:
            raise Unsealable("was tampered with") from None


class Sealer:
    """Seals and opens states with a list of keys: the first one seals, all of them open.

    Workers that share keys can continue each other's requests. A key may be rotated out once its
    states have expired; see `KeyRing`.

    Args:
        keys: Keys of 32 bytes each; by default one random key.
        ttl: Seconds for which a state is valid.
        max_size: Bytes of the longest state to make or accept.

    >>> sealer = Sealer([secret], ttl=600)
    """

    __slots__ = ("_keys", "max_size", "ttl")

    def __init__(
        self,
        keys: list[bytes] | None = None,
        *,
        ttl: float = 600.0,
        max_size: int = 256 * 1024,
        random_bytes: Callable[[int], bytes] = urandom,
    ) -> None:
        self.ttl = ttl
        self.max_size = max_size
        self._keys = KeyRing(keys, random_bytes)

    def seal(self, payload: bytes, bound: Binding, now: float) -> str:
        """Return the `requestState` that carries `payload` to the next round."""
        plain = msgspec.json.encode(_Sealed(now + self.ttl, bound, Raw(payload)))
        token = urlsafe_b64encode(self._keys.encrypt(plain))
        if len(token) > self.max_size:
            raise LimitReached(
                f"the answers collected so far make a requestState of {len(token)} bytes, over the "
                f"{self.max_size} of `Limits.max_request_state`; ask for less, or store answers elsewhere"
            )
        return token.decode("ascii")

    def open(self, token: str, bound: Binding, now: float) -> Raw:
        """Return the sealed payload. Raises `StateRefused` with the reason."""
        if len(token) > self.max_size:
            raise StateRefused("is longer than any made by this server")
        state = self._decrypt(token)
        if state.expires < now:
            raise StateRefused("has expired; start the request again")
        if state.binding.principal != bound.principal:
            raise StateRefused("belongs to another principal")
        if state.binding.call != bound.call:
            raise StateRefused("belongs to another call")
        return state.payload

    def _decrypt(self, token: str) -> _Sealed:
        try:
            spelled = token.encode("ascii")
            raw = urlsafe_b64decode(spelled)
        except ValueError:
            raise StateRefused("was not made by this server") from None
        if urlsafe_b64encode(raw) != spelled:
            # Base64 can spell the same bytes in several ways; only one of them is accepted.
            raise StateRefused("was not made by this server")
        try:
            plain = self._keys.decrypt(raw)
        except Unsealable as error:
            raise StateRefused(str(error)) from None
        return _sealed_decoder.decode(plain)
