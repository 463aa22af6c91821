"""Where tokens and registrations are kept: in memory, in files, or in the system's keyring.

Everything is kept under the issuer that gave it and the resource it is for, and nothing is ever
looked up under another issuer. A lock on such a key holds between all that share the store, other
processes included, so that a token is renewed once.
"""

import asyncio
import hashlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime import clock

logger = logging.getLogger("mcpearl.auth")

_POLL = 0.05  # seconds between looks at a lock another process holds
_MAX_WAIT = 600.0  # seconds; a person may be logging in meanwhile
_MAX_RECORD = 256 * 1024

Record = dict[str, Any]


class Key(NamedTuple):
    """What a record is kept under."""

    issuer: str
    resource: str
    """The resource a token is for; empty for what belongs to the issuer itself."""


class Storage(Protocol):
    """Keeps JSON objects. Bring your own by writing these four."""

    async def load(self, key: Key) -> Record | None:
        """Give what is kept under a key."""
        ...

    async def save(self, key: Key, record: Record) -> None:
        """Keep something, in place of what was there."""
        ...

    async def delete(self, key: Key) -> None:
        """Keep nothing any more."""
        ...

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        """Keep others from renewing what is under a key."""
        ...


class MemoryStorage:
    """Keeps everything for as long as this object lives."""

    def __init__(self) -> None:
        self._records: dict[Key, Record] = {}
        self._locks: dict[Key, asyncio.Lock] = {}

    async def load(self, key: Key) -> Record | None:
        """Give what is kept under a key."""
        return self._records.get(key)

    async def save(self, key: Key, record: Record) -> None:
        """Keep something, in place of what was there."""
        self._records[key] = record

    async def delete(self, key: Key) -> None:
        """Keep nothing any more."""
        self._records.pop(key, None)

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        """Keep others from renewing what is under a key."""
        return self._locks.setdefault(key, asyncio.Lock())


class FileStorage:
    """Keeps each record in a file of its own that only its owner can read, replaced as a whole.

    >>> OAuth(storage=FileStorage("~/.config/my-agent/tokens"))

    Without a directory it is `mcpearl/tokens` in the user's directory for state.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self._directory = _state() if directory is None else Path(directory).expanduser()

    def _path(self, key: Key) -> Path:
        name = hashlib.sha256("\n".join(key).encode()).hexdigest()[:32]
        return self._directory / f"{name}.json"

    async def load(self, key: Key) -> Record | None:
        """Give what is kept under a key."""
        path = self._path(key)
        try:
            return _record(key, path.read_bytes()[: _MAX_RECORD + 1])
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("tokens in %s cannot be read: %s", path, error)
            return None

    async def save(self, key: Key, record: Record) -> None:
        """Keep something, in place of what was there."""
        path = self._path(key)
        try:
            _private_directory(self._directory)
            _replace(path, _encoded(key, record))
        except OSError as error:
            logger.warning("tokens cannot be kept in %s: %s", path, error)

    async def delete(self, key: Key) -> None:
        """Keep nothing any more."""
        self._path(key).unlink(missing_ok=True)

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        """Keep other processes from renewing what is under a key."""
        return _file_lock(self._path(key).with_suffix(".lock"))


class KeyringStorage:
    """Keeps everything in the keyring of the system, through the package `keyring`."""

    def __init__(self, service: str = "mcpearl") -> None:
        try:
            import keyring
        except ImportError:
            raise RuntimeError("KeyringStorage needs the package `keyring` installed") from None
        self._keyring = keyring
        self._service = service
        self._locks = _state().parent / "locks"

    async def load(self, key: Key) -> Record | None:
        """Give what is kept under a key."""
        kept = await asyncio.to_thread(self._keyring.get_password, self._service, _user(key))
        return None if kept is None else _record(key, kept.encode())

    async def save(self, key: Key, record: Record) -> None:
        """Keep something, in place of what was there."""
        text = _encoded(key, record).decode()
        await asyncio.to_thread(self._keyring.set_password, self._service, _user(key), text)

    async def delete(self, key: Key) -> None:
        """Keep nothing any more."""
        if await self.load(key) is not None:
            await asyncio.to_thread(self._keyring.delete_password, self._service, _user(key))

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        """Keep other processes from renewing what is under a key."""
        name = hashlib.sha256("\n".join((self._service, *key)).encode()).hexdigest()[:32]
        return _file_lock(self._locks / f"{name}.lock")


def _user(key: Key) -> str:
    return f"{key.issuer} {key.resource}"


def _encoded(key: Key, record: Record) -> bytes:
    return msgspec.json.encode({"issuer": key.issuer, "resource": key.resource, "kept": record})


def _record(key: Key, data: bytes) -> Record | None:
    """Read a record; one that names another key is somebody else's."""
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE:
        logger.warning("what is kept for %s is damaged, and passed over", key.issuer)
        return None
    if (found.get("issuer"), found.get("resource")) != key:
        return None
    kept = found.get("kept")
    return kept if isinstance(kept, dict) else None


# Files


def _state() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "mcpearl" / "tokens"


def _private_directory(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)


def _replace(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all. It is its owner's alone from the first moment."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[None]:
    """Hold a lock that ends with the process at the latest."""
    try:
        handle = _open_lock(path)
    except OSError as error:
        logger.warning("%s cannot be locked, others may renew at the same time: %s", path, error)
        yield
        return
    try:
        until = clock.monotonic() + _MAX_WAIT
        while not _try_lock(handle):
            if clock.monotonic() > until:
                raise AuthorizationFailed(f"another process holds {path} for {_MAX_WAIT:g} s")
            await asyncio.sleep(_POLL)
        yield
    finally:
        os.close(handle)


def _open_lock(path: Path) -> int:
    _private_directory(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _try_lock(handle: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
