"""Keys that the processes of a deployment agree on through their store.

The first process makes a key, and all others find it. It is stored encrypted with a key that is derived
from the password of the store, so that a copy of the data alone opens nothing. If the store has no
password, the key is stored in clear: any program that can read the store can read what the key seals.
"""

import hashlib
import logging

from mcpearl.runtime import clock
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_script import Script

logger = logging.getLogger("mcpearl.stores")

_KEY = 32
_SALT = 16
_NONCE = 12
_WRAPPED, _PLAIN = b"wrapped", b"plain"
_YEAR = 365 * 86_400 * 1000  # milliseconds; live processes extend it

_AGREE = Script(
    """
local found = redis.call('HMGET', KEYS[1], 'form', 'salt', 'key')
if not found[1] then
    redis.call('HSET', KEYS[1], 'form', ARGV[1], 'salt', ARGV[2], 'key', ARGV[3])
    found = {ARGV[1], ARGV[2], ARGV[3]}
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return found
"""
)


async def agreed_keys(link: RedisLink) -> list[bytes]:
    """Return the keys of the deployment; make one if there are none.

    Raises:
        StoreUnavailable: The store cannot be reached, or its key does not open with this password.
    """
    password, where = link.address.password, link.address.shown
    salt, key = clock.random_bytes(_SALT), clock.random_bytes(_KEY)
    form, stored = _PLAIN, key
    if password:
        form, stored = _WRAPPED, _wrap(_derived(password, salt), key)
    form, salt, stored = await link.run(_AGREE, [link.key("keys")], (form, salt, stored, _YEAR))
    if form == _PLAIN and len(stored) == _KEY:
        logger.warning(
            "%s has no password, so the keys of this deployment are stored there in clear; give it one, "
            "or give every process the same `Server(state_keys=…)` or MCPEARL_STATE_KEYS",
            where,
        )
        return [bytes(stored)]
    if form != _WRAPPED or not password:
        raise StoreUnavailable(
            f"the keys in {where} were stored by a process that gave a password, and cannot be read "
            "without; give the same address to every process"
        )
    return [_unwrap(_derived(password, bytes(salt)), bytes(stored), where)]


def _derived(password: str, salt: bytes) -> bytes:
    """Return the wrapping key. Deriving it is slow on purpose."""
    return hashlib.scrypt(password.encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=_KEY)


def _wrap(wrapping: bytes, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = clock.random_bytes(_NONCE)
    return nonce + AESGCM(wrapping).encrypt(nonce, key, None)


def _unwrap(wrapping: bytes, stored: bytes, where: str) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(wrapping).decrypt(stored[:_NONCE], stored[_NONCE:], None)
    except (InvalidTag, ValueError):
        raise StoreUnavailable(
            f"the keys in {where} cannot be opened: they were stored under another password; give "
            "every process the same `Server(state_keys=…)`, or delete the store's `keys`"
        ) from None
