"""The key file beside a store, for a server without `state_keys`."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from mcpearl.runtime import clock
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.tasks import TaskStore

_BYTES = 32


@runtime_checkable
class KeptInFile(Protocol):
    """A store that is a file, beside which a key can be kept."""

    path: Path


def key_of(store: TaskStore) -> bytes:
    """Return the key of a store that is a file; raises `StoreUnavailable` for any other."""
    if not isinstance(store, KeptInFile):
        raise StoreUnavailable("tasks that outlive the process need `Server(state_keys=[…])`")
    return key_beside(store.path)


def key_beside(path: Path) -> bytes:
    """Return the key in the file beside a store, which is made if there is none.

    Without the key, a copy of the store cannot be read. `Server(state_keys=…)` keeps the key elsewhere.
    Processes that start together get the same key.
    """
    key_path = path.with_name(path.name + ".key")
    try:
        if not key_path.exists():
            _make(key_path)
        key = key_path.read_bytes()
    except OSError as error:
        raise StoreUnavailable(f"the key of {path} cannot be read: {error}") from None
    if len(key) != _BYTES:
        raise StoreUnavailable(f"{key_path} is not a key: it has {len(key)} bytes, not {_BYTES}")
    return key


def _make(key_path: Path) -> None:
    fresh = key_path.with_name(f"{key_path.name}.{clock.token(6)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, clock.random_bytes(_BYTES))
        os.fsync(descriptor)
        with suppress(FileExistsError):  # another process was first
            os.link(fresh, key_path)
    finally:
        os.close(descriptor)
        fresh.unlink()
