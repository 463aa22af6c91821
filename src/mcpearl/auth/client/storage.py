"""Stores tokens and registrations: in memory, in files, or in the system's keyring.

A record is stored under its issuer and resource, and never looked up under another issuer. A lock on
such a key applies to all users of the store, including other processes, so that a token is refreshed
only once.
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

_POLL = 0.05  # seconds between attempts to take a lock of another process
_MAX_WAIT = 600.0  # seconds; a user may be logging in meanwhile
_MAX_RECORD = 256 * 1024

Record = dict[str, Any]


class Key(NamedTuple):
    """What a record is stored under."""

    issuer: str
    resource: str
    """The resource a token is for; empty for records of the issuer itself."""


class Storage(Protocol):
    """Stores JSON objects. Implement these four methods for a store of your own."""

    async def load(self, key: Key) -> Record | None:
        """Return the record of a key, or None.

        Args:
            key: What the record is stored under.
        """
        ...

    async def save(self, key: Key, record: Record) -> None:
        """Store a record, replacing an earlier one.

        Args:
            key: What to store it under.
            record: A JSON object.
        """
        ...

    async def delete(self, key: Key) -> None:
        """Delete a record, if it exists.

        Args:
            key: What the record is stored under.
        """
        ...

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        """Lock a key, so that others do not refresh its token at the same time.

        Args:
            key: The key to lock.
        """
        ...


class MemoryStorage(Storage):
    """Stores records in memory, for as long as this object exists."""

    def __init__(self) -> None:
        self._records: dict[Key, Record] = {}
        self._locks: dict[Key, asyncio.Lock] = {}

    async def load(self, key: Key) -> Record | None:
        return self._records.get(key)

    async def save(self, key: Key, record: Record) -> None:
        self._records[key] = record

    async def delete(self, key: Key) -> None:
        self._records.pop(key, None)

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        return self._locks.setdefault(key, asyncio.Lock())


class FileStorage(Storage):
    """Stores each record in a file that only its owner can read, replaced atomically.

    Args:
        directory: Where the files are; by default `mcpearl/tokens` in the user's state directory.

    >>> OAuth(storage=FileStorage("~/.config/my-agent/tokens"))
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self._directory = _state() if directory is None else Path(directory).expanduser()

    def _path(self, key: Key) -> Path:
        name = hashlib.sha256("\n".join(key).encode()).hexdigest()[:32]
        return self._directory / f"{name}.json"

    async def load(self, key: Key) -> Record | None:
        path = self._path(key)
        try:
            return _record(key, path.read_bytes()[: _MAX_RECORD + 1])
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("tokens in %s cannot be read: %s", path, error)
            return None

    async def save(self, key: Key, record: Record) -> None:
        path = self._path(key)
        try:
            _private_directory(self._directory)
            if self._directory.stat().st_mode & 0o022:
                logger.warning("tokens are kept in %s, where others can write", self._directory)
            _replace(path, _encoded(key, record))
        except OSError as error:
            logger.warning("tokens cannot be saved to %s: %s", path, error)

    async def delete(self, key: Key) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("tokens in %s cannot be deleted: %s", path, error)

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        return _file_lock(self._path(key).with_suffix(".lock"))


class KeyringStorage(Storage):
    """Stores records in the system's keyring, with the package `keyring`.

    Args:
        service: The name under which the keyring lists the records.
    """

    def __init__(self, service: str = "mcpearl") -> None:
        try:
            import keyring
        except ImportError:
            raise RuntimeError(
                "KeyringStorage needs the package `keyring`: install mcpearl[keyring]"
            ) from None
        self._keyring = keyring
        self._service = service
        self._locks = _state().parent / "locks"

    async def load(self, key: Key) -> Record | None:
        kept = await asyncio.to_thread(self._keyring.get_password, self._service, _user(key))
        return None if kept is None else _record(key, kept.encode())

    async def save(self, key: Key, record: Record) -> None:
        text = _encoded(key, record).decode()
        await asyncio.to_thread(self._keyring.set_password, self._service, _user(key), text)

    async def delete(self, key: Key) -> None:
        if await self.load(key) is not None:
            await asyncio.to_thread(self._keyring.delete_password, self._service, _user(key))

    def lock(self, key: Key) -> AbstractAsyncContextManager[None]:
        name = hashlib.sha256("\n".join((self._service, *key)).encode()).hexdigest()[:32]
        return _file_lock(self._locks / f"{name}.lock")


def _user(key: Key) -> str:
    return f"{key.issuer} {key.resource}"


def _encoded(key: Key, record: Record) -> bytes:
    return msgspec.json.encode({"issuer": key.issuer, "resource": key.resource, "kept": record})


def _record(key: Key, data: bytes) -> Record | None:
    """Decode a record. Return None if it is damaged or belongs to another key."""
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE:
        logger.warning("ignored a damaged record of %s in the token store", key.issuer)
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
    """Make a directory, and those above it that are missing, for its owner alone."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True, mode=0o700)


def _replace(path: Path, data: bytes) -> None:
    """Write a file atomically; only its owner can ever read it."""
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
    """Hold a lock on a file, which is released at the latest when the process ends."""
    try:
        handle = _open_lock(path)
    except OSError as error:
        logger.warning(
            "%s cannot be locked, other processes may refresh at the same time: %s", path, error
        )
        yield
        return
    try:
        until = clock.monotonic() + _MAX_WAIT
        while not _try_lock(handle):
            if clock.monotonic() > until:
                raise AuthorizationFailed(f"another process has held {path} for {_MAX_WAIT:g} s")
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
