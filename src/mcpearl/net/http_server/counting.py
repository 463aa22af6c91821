"""Connections of which the bytes are counted, for metrics. Others do no work for it."""

from mcpearl.net.http_server.http1_connection import HttpServerConnection

_data_received = HttpServerConnection.data_received


class CountedConnection(HttpServerConnection):
    """A connection whose bytes are counted. Responses that leave together are counted by their batch."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        """Count bytes, and take them."""
        self.front.received += len(data)
        _data_received(self, data)

    def write(self, data: bytes) -> None:
        """Send bytes; count those that leave now."""
        if not self.batch.collecting:
            self.front.sent_alone += len(data)
        super().write(data)
