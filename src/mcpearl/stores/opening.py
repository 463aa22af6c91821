"""From the address of a store to the store."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpearl.stores.tasks import TaskStore

_SQLITE = "sqlite:///"


def open_task_store(address: str) -> "TaskStore":
    """Return the store at an address: `sqlite:///tasks.db`, or `sqlite:////var/lib/app/tasks.db`.

    Raises `ValueError` for an address of no store.
    """
    if not address.startswith(_SQLITE) or address == _SQLITE:
        raise ValueError(
            f"{address!r} is not the address of a store; write `sqlite:///tasks.db`, or pass a store"
        )
    from mcpearl.stores.sqlite_tasks import SqliteTaskStore

    return SqliteTaskStore(address.removeprefix(_SQLITE))
