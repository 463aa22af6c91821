"""The transport of requests without a session: they have no channel beside their responses."""

from mcpearl.transports.transport import Outgoing, Receiver, Transport


class NullTransport(Transport):
    """A transport that drops what it is sent and never receives anything."""

    keeps_alive = True
    medium = "other"

    async def open(self, receiver: Receiver) -> None:
        pass

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        pass

    def flush(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    async def close(self) -> None:
        pass
