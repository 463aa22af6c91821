"""The transport of requests that stand for themselves: there is nothing beside their answers."""

from typing import Any


class NullTransport:
    """The transport of a request that stands for itself: there is nothing beside its answer."""

    async def open(self, receiver: Any) -> None:
        pass

    def send(self, message: bytes) -> None:
        pass

    def flush(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    async def close(self) -> None:
        pass
