"""What the synchronous faces share: an asynchronous object, and the portal to the loop it lives on."""

import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from mcpearl.sync.portal import Portal, threaded

P = ParamSpec("P")
T = TypeVar("T")
_CALLBACKS = ("on_log", "on_progress", "on_notification", "on_state")


class Connectable(Protocol):
    """What is connected to and closed: a client or a host."""

    async def connect(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Close."""
        ...


C = TypeVar("C", bound=Connectable)


class Face(Generic[C]):
    """The synchronous face of a client or a host.

    Args:
        inner: The asynchronous object.
        portal: The loop it lives on, if that belongs to another face.
    """

    def __init__(self, inner: C, portal: Portal | None = None) -> None:
        self._inner = inner
        self._portal = Portal() if portal is None else portal
        self._ending: Callable[[], Any] | None = None  # ends the loop, and connections with it
        if portal is None:
            # A face that was not closed is closed when it is collected, or the program ends.
            self._ending = weakref.finalize(self, _finish, self._portal, inner.close)

    def connect(self) -> None:
        """Connect. `with` connects, and closes at its end."""
        self._portal.run(self._inner.connect())

    def run(
        self,
        function: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a coroutine function on the event loop of this object, and return its result.

        Args:
            function: Called with the asynchronous object, and what follows here.
            *args: Further arguments of the function.
            **kwargs: Its keyword arguments.
        """
        return self._portal.run(function(self._inner, *args, **kwargs))

    def close(self) -> None:
        """End the connection and all that belongs to it. Idempotent."""
        if self._ending is None:
            self._portal.run(self._inner.close())
        else:
            self._portal.finish(self._inner.close)

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._inner!r}>"


def _finish(portal: Portal, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    portal.finish(close)


def for_threads(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a client with callbacks that may wait, and call the client.

    Args:
        options: What the application passed.
    """
    return {
        name: threaded(value) if name in _CALLBACKS else value for name, value in options.items()
    }


class SyncStream(Generic[T]):
    """A stream of changes, for `with` and `for`.

    Args:
        inner: The asynchronous stream.
        portal: The loop it lives on.
    """

    def __init__(self, inner: Any, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def __enter__(self) -> Self:
        if hasattr(self._inner, "__aenter__"):
            self._portal.run(self._inner.__aenter__())
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        items: AsyncIterator[T] = self._inner
        return self._portal.iterate(items)

    def close(self) -> None:
        """End the stream."""
        self._portal.call(self._inner.close)
