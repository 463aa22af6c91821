"""The bytes a server holds for its peers: one budget for all of them, and a share for each.

Everything that is held for longer than a moment is counted here: a body that did not arrive in one read,
an answer the socket did not take, a session, a subscription. A peer may hold at most a third of what is
then still free. So a peer alone may hold a quarter of the budget, and less the more the others hold. The
last sixteenth is reserved for peers that hold little. Nothing is taken from a peer to make room for
another; a claim over the peer's share is refused.

History is an exception: it fills what is free, and its oldest part is dropped when peers need the room.
All other holdings are called firm. Everything runs on the event loop. Small amounts are not counted one
by one; each kind of holder says what it leaves out, and a connection's flat charge covers that.
"""

import os
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from mcpearl.runtime.observer import Reached

MIB = 1024 * 1024
CHUNK = 4096  # bytes; holdings are counted in multiples of it
UNCOUNTED = 16 * 1024  # bytes a connection may hold uncounted, in addition to its flat charge
CONNECTION = 16 * 1024  # the flat charge of a connection, in bytes, from its beginning to its end
LITTLE = 64 * 1024  # a peer that holds up to this many bytes may use the reserve
_LEAVES = 3  # a peer leaves free this many times what it holds
_RESERVE = 16  # one sixteenth of the budget is reserved for peers that hold little

_SMALLEST = 64 * MIB
_LARGEST = 2048 * MIB
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class NoRoom(Exception):
    """A peer would hold more than its share. The message says so, and what to do."""


def default_budget() -> int:
    """Return a quarter of the memory this process may use: at least 64 MiB, at most 2 GiB."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _CGROUPS:
        # No such file, or `max`. Loading pathlib would take longer than all of this.
        with suppress(OSError, ValueError), open(name) as file:  # noqa: PTH123
            memory = min(memory, int(file.read()))
    return min(max(memory // 4, _SMALLEST), _LARGEST)


class Holding:
    """Bytes of one kind that are held for one peer. It starts with none."""

    __slots__ = ("_account", "_kind", "size")

    def __init__(self, account: "Account", kind: str) -> None:
        self._account = account
        self._kind = kind
        self.size = 0
        """The bytes that are counted now: those that were asked for, rounded up."""

    def resize(self, size: int) -> bool:
        """Hold `size` bytes from now on; False, with nothing changed, when there is no room."""
        more = -(-size // CHUNK) * CHUNK - self.size
        if more > 0:
            if not self._account.take(self._kind, more):
                return False
        elif more < 0:
            self._account.give_back(self._kind, -more)
        self.size += more
        return True

    def grow(self, size: int) -> None:
        """Hold `size` bytes from now on.

        Raises:
            NoRoom: There is no room, and nothing changed.
        """
        if not self.resize(size):
            raise NoRoom(self._account.refusal)

    def release(self) -> None:
        """Hold nothing from now on."""
        if self.size:
            self._account.give_back(self._kind, self.size)
            self.size = 0


class Account:
    """What is held for one peer: a principal, an address, or a single connection."""

    __slots__ = ("__weakref__", "_budget", "held")

    def __init__(self, budget: "Budget") -> None:
        self._budget = budget
        self.held = 0

    def open(self, kind: str) -> Holding:
        """Return a new, empty holding of this peer."""
        return Holding(self, kind)

    def open_batch(self) -> Callable[[int], bool]:
        """Return the `resize` of a new holding for a batch of messages."""
        return self.open("batches").resize

    def hold(self, kind: str, size: int) -> Holding:
        """Return a holding of `size` bytes. Raises `NoRoom`."""
        holding = Holding(self, kind)
        holding.grow(size)
        return holding

    @property
    def is_spent(self) -> bool:
        """Whether a claim of this peer was refused, and it still holds most of what it may."""
        if self in self._budget.spent:
            self._budget.check_spent(self)
        return self in self._budget.spent

    @property
    def refusal(self) -> str:
        """Why this peer may hold no more, as a message to it."""
        total = self._budget.total
        return (
            f"The server holds {_shown(self.held)} for this client and may hold no more: all clients "
            f"share {_shown(total)}; let it finish or read what is waiting, then try again"
        )

    def take(self, kind: str, size: int) -> bool:
        """Count more bytes; return False when that would exceed the peer's share."""
        budget = self._budget
        if not budget.has_room(self, size) and not budget.make_room(self, size):
            budget.refused(self, kind)
            return False
        self.held += size
        budget.add(kind, size)
        return True

    def give_back(self, kind: str, size: int) -> None:
        """Count fewer bytes."""
        self.held -= size
        self._budget.remove(kind, size)
        if self._budget.pressed:
            self._budget.check_spent(self)


class Budget:
    """All that one server holds.

    >>> budget = Budget(256 * MIB)
    >>> body = budget.account("192.0.2.7").open("bodies")
    >>> body.resize(len(received))
    True
    >>> body.release()

    Args:
        total: Bytes that may be held for all peers together.
        reached: Notified of each refusal: the name of the setting, and the reason.
    """

    def __init__(self, total: int | None = None, reached: "Reached | None" = None) -> None:
        self.total = default_budget() if total is None else total
        self.is_default = total is None
        self._reached = reached
        self._accounts: WeakValueDictionary[Hashable, Account] = WeakValueDictionary()
        self._kinds: dict[str, int] = {}
        self.firm = 0  # bytes held, without history
        self._idle: list[Callable[[Account], bool]] = []
        self._histories: dict[History, None] = {}
        self.spent: set[Account] = set()
        """Peers that were refused and still hold most of what they may."""
        self.pressed = False
        """Whether there are such peers."""

    @property
    def held(self) -> int:
        """The bytes held for all peers, history included."""
        return sum(self._kinds.values())

    @property
    def by_kind(self) -> Mapping[str, int]:
        """The bytes held, by kind."""
        return self._kinds

    def divide(self, processes: int) -> None:
        """Divide the default budget among processes; a budget that was set is for each process."""
        if self.is_default:
            self.total = max(self.total // processes, _SMALLEST)

    def account(self, key: Hashable = None) -> Account:
        """Return the account of a peer; without a key, a new account.

        An account exists as long as there is a reference to it.
        """
        if key is None:
            return Account(self)
        found = self._accounts.get(key)
        if found is None:
            found = self._accounts[key] = Account(self)
        return found

    # Room

    def has_room(self, account: Account, size: int) -> bool:
        """Whether a peer may hold `size` more bytes."""
        held, free = account.held + size, self.total - self.firm - size
        if held <= LITTLE:
            return free >= 0
        return _LEAVES * held <= free and free >= self.total // _RESERVE

    def when_short(self, release: Callable[[Account], bool]) -> Callable[[], None]:
        """Register a function that ends a peer's oldest idle holding, or returns False if it has none.

        Returns:
            A function that removes it again.
        """
        self._idle.append(release)
        return lambda: self._idle.remove(release)

    def make_room(self, account: Account, size: int) -> bool:
        """End idle holdings of a peer, the oldest first, until it has room; False if it gets none."""
        if (_LEAVES + 1) * size > self.total:
            return False
        for release in self._idle:
            while release(account):
                if self.has_room(account, size):
                    return True
        return False

    def refused(self, account: Account, kind: str) -> None:
        """Note that a peer was refused."""
        self.spent.add(account)
        self.check_spent(account)
        if self._reached is not None:
            self._reached("max_held", f"{kind}: {account.refusal}")

    def check_spent(self, account: Account) -> None:
        """Forget a refusal once the peer holds half of what it may, or little."""
        if account.held <= LITTLE or 2 * _LEAVES * account.held <= self.total - self.firm:
            self.spent.discard(account)
        self.pressed = bool(self.spent)

    # Counting

    def add(self, kind: str, size: int) -> None:
        """Count firm bytes, and drop history if there is no room for both."""
        self._kinds[kind] = self._kinds.get(kind, 0) + size
        self.firm += size
        for history in self._histories:
            if self.firm + self._kinds["history"] <= self.total:
                break
            history.shrink(self.firm + self._kinds["history"] - self.total)

    def remove(self, kind: str, size: int) -> None:
        """Count fewer firm bytes."""
        self._kinds[kind] -= size
        self.firm -= size

    def history(self, drop: Callable[[int], None]) -> "History":
        """Return the counter of a store of history.

        Args:
            drop: Called to drop at least the given number of bytes, the oldest first.
        """
        history = History(self, drop)
        self._histories[history] = None
        self._kinds.setdefault("history", 0)
        return history

    def leave(self, history: "History") -> None:
        """Forget a store of history, which is empty."""
        self._histories.pop(history, None)

    def count_history(self, more: int) -> None:
        """Count bytes of history."""
        self._kinds["history"] += more

    @property
    def free_for_history(self) -> int:
        """Bytes that neither peers nor history hold."""
        return self.total - self.firm - self._kinds["history"]


class History:
    """The bytes of one store of history: as many as are free, and fewer when peers need them."""

    __slots__ = ("_budget", "_drop", "size")

    def __init__(self, budget: Budget, drop: Callable[[int], None]) -> None:
        self._budget = budget
        self._drop = drop
        self.size = 0

    def resize(self, size: int) -> None:
        """Count `size` bytes; the oldest are dropped if there is no room for all."""
        size = -(-size // CHUNK) * CHUNK
        self._budget.count_history(size - self.size)
        self.size = size
        if self._budget.free_for_history < 0:
            self.shrink(-self._budget.free_for_history)

    def shrink(self, size: int) -> None:
        """Drop at least `size` bytes, or all; dropping them resizes this counter."""
        if self.size:
            self._drop(min(size, self.size))

    def close(self) -> None:
        """Stop counting; the store is empty."""
        self.resize(0)
        self._budget.leave(self)


def _shown(size: int) -> str:
    return f"{size / MIB:.1f} MiB" if size >= MIB else f"{size / 1024:.0f} KiB"
