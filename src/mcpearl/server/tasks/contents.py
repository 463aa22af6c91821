"""What is stored of a task beside its state: request, journal and result, sealed in a durable store."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcpearl.protocol.errors import LimitReached
from mcpearl.server.tasks.journal import Journal, unpack_journal
from mcpearl.server.tasks.options import TaskBounds
from mcpearl.server.tasks.vault import Vault
from mcpearl.stores.tasks import TaskRecord

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore


class TaskContents:
    """Reads and writes the contents of records.

    Args:
        core: What the server's connections share; notified when a bound is reached.
        bounds: Bounds of what is stored of one task.
    """

    def __init__(self, core: "ServerCore", bounds: TaskBounds) -> None:
        self._core = core
        self._bounds = bounds
        self._vault: Vault | None = None

    def seal_with(self, keys: list[bytes]) -> None:
        """Seal what is stored from now on; the first key seals, all of them open."""
        self._vault = Vault(keys)

    def journal_of(self, record: TaskRecord) -> Journal:
        """Return the journal of a task."""
        return unpack_journal(self.opened(record.id, record.journal))

    def with_journal(self, record: TaskRecord, journal: Journal) -> TaskRecord:
        """Return a record with another journal; raises `LimitReached` if it is too large."""
        return replace(record, journal=self.sealed_journal(record.id, journal))

    def sealed_journal(self, id: str, journal: Journal) -> bytes:
        """Return a journal as it is stored; raises `LimitReached` if it is too large."""
        packed = journal.pack()
        limit = self._bounds.max_journal
        if len(packed) > limit:
            self._core.bounded("TaskBounds.max_journal", f"{len(packed)} bytes")
            raise LimitReached(
                f"questions, answers and `ctx.once` values of the task have {len(packed)} bytes, "
                f"over the {limit} of `TaskBounds.max_journal`"
            )
        return self.sealed(id, packed)

    def content_of(self, record: TaskRecord) -> bytes | None:
        """Return the encoded result or error of a task that is over."""
        return None if record.result is None else self.opened(record.id, record.result)

    def sealed(self, id: str, data: bytes) -> bytes:
        """Return contents as they are stored."""
        return data if self._vault is None or not data else self._vault.seal(id, data)

    def opened(self, id: str, data: bytes) -> bytes:
        """Return contents that were stored."""
        return data if self._vault is None or not data else self._vault.open(id, data)
