"""Creates the store that an address names."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpearl.stores.shared import SharedStore
    from mcpearl.stores.tasks import TaskStore

_SQLITE = "sqlite:///"


def open_store(address: str, name: str) -> "TaskStore | SharedStore":
    """Return the store at an address: a file for tasks, or Redis or Valkey for everything.

    Args:
        address: `sqlite:///tasks.db`, `sqlite:////var/lib/app/tasks.db`, `redis://localhost`, and so on.
        name: The name of the server.

    Raises:
        ValueError: It is not the address of a store.
    """
    from mcpearl.stores.redis_address import is_redis

    if is_redis(address):
        from mcpearl.stores.redis_store import RedisStore

        return RedisStore(address, name)
    if not address.startswith(_SQLITE) or address == _SQLITE:
        raise ValueError(
            f"{address!r} is not the address of a store; write `sqlite:///tasks.db` or "
            "`redis://localhost:6379`, or pass a store"
        )
    from mcpearl.stores.sqlite_tasks import SqliteTaskStore

    return SqliteTaskStore(address.removeprefix(_SQLITE))
