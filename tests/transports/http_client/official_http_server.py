"""The server of the official Python SDK over HTTP: `python -m … MODE` prints its port.

MODE is `stream` (events, no resumption), `json` (plain answers), `events` (resumable streams, with a
tool that hangs up) or `sse` (HTTP+SSE of 2024-11-05).
"""

import socket
import sys
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage
from pydantic import Field

from tests.interop.official_server import server


class Memory(EventStore):
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        stream = self.events[int(last_event_id) - 1][0]
        for number, (id, message) in enumerate(self.events, 1):
            if number > int(last_event_id) and id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


@server.tool()
async def hang_up(ctx: Context[Any, Any]) -> str:
    """Close the stream, and answer when the client comes back."""
    await ctx.report_progress(1, 2)
    await ctx.close_sse_stream()
    await ctx.report_progress(2, 2)
    return "you came back"


@server.tool()
def where(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    floor: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Floor"})] = 0,
) -> str:
    """Say where; the headers have to say so, too."""
    return f"{region}, floor {floor}"


def app(mode: str) -> Any:
    if mode == "sse":
        return server.sse_app()
    if mode == "events":
        return server.streamable_http_app(event_store=Memory(), retry_interval=100)
    return server.streamable_http_app(json_response=mode == "json")


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(app(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run([listening])
