"""A client's transport that wraps another one, and passes through what it does not change."""

from mcpearl.transports.transport import Talkative, ToolAware, Transport
from mcpearl.types.tools import Tool


class WrappedTransport(Transport):
    """The base of transports that see or change what passes through another.

    Args:
        inner: The transport that carries the messages.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.keeps_alive = inner.keeps_alive
        self.medium = inner.medium

    def flush(self) -> None:
        """Send what was taken now."""
        self._inner.flush()

    def pause(self) -> None:
        """Stop reading."""
        self._inner.pause()

    def resume(self) -> None:
        """Read again."""
        self._inner.resume()

    async def close(self) -> None:
        """Close the transport."""
        await self._inner.close()

    @property
    def last_words(self) -> str:
        """What the process behind the transport last wrote to stderr, if there is one."""
        return self._inner.last_words if isinstance(self._inner, Talkative) else ""

    def learn_tools(self, tools: list[Tool]) -> list[Tool]:
        """Note the schemas of listed tools; return the tools that can be called."""
        return self._inner.learn_tools(tools) if isinstance(self._inner, ToolAware) else tools
