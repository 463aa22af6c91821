"""A process of the scene on the official SDK: ``python mcp_scene.py <port> <log>``.

The tools are those of `tests/deployment/scene_server.py`, without tasks. Questions are asked the way that
works in both eras there.
"""

import asyncio
import logging
import os
import sys
from typing import Annotated, Any

import mcp_types as types
import uvicorn
from mcp.server import MCPServer, ServerRequestContext
from mcp.server.mcpserver import Context, Elicit, Resolve, Sample
from pydantic import BaseModel

PORT, LOG = int(sys.argv[1]), sys.argv[2]
app = MCPServer("scene", version="1.0.0", log_level="ERROR")


class Answer(BaseModel):
    """What is asked for."""

    a: str


def note(line: str) -> None:
    """Write one line; appending is one step for the system."""
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def heard(key: str, answer: object) -> None:
    """Note that a question was answered, and whether with its own answer."""
    note(f"heard {key}" if answer == key else f"wrong {key} {answer}")


def which(key: str) -> Elicit[Answer]:
    """Ask the user."""
    note(f"asked {key} {os.getpid()}")
    return Elicit(f"Which? {key}", Answer)


def shall_we(key: str) -> Sample:
    """Ask the client's model."""
    note(f"asked {key} {os.getpid()}")
    question = types.TextContent(type="text", text=f"Shall we? {key}")
    return Sample([types.SamplingMessage(role="user", content=question)], max_tokens=10)


@app.tool()
async def record(key: str) -> int:
    """Note a key."""
    note(f"ran {key}")
    return os.getpid()


@app.tool()
async def ask(key: str, answer: Annotated[Answer, Resolve(which)]) -> str:
    """Ask the client, then note a key."""
    heard(key, answer.a)
    note(f"ran {key}")
    return answer.a


@app.tool()
async def sample(key: str, answer: Annotated[types.CreateMessageResult, Resolve(shall_we)]) -> str:
    """Ask the client's model, then note a key."""
    heard(key, getattr(answer.content, "text", None))
    note(f"ran {key}")
    return answer.model


@app.tool()
async def count(key: str, ctx: Context[Any, Any]) -> int:
    """Report progress for a while."""
    note(f"ran {key}")
    for number in range(5):
        await ctx.report_progress(number + 1, 5)
        await asyncio.sleep(0.05)
    return os.getpid()


@app.tool()
async def leave(key: str, ctx: Context[Any, Any]) -> int:
    """Send the client away while a key is noted; without an event store this does nothing."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    note(f"ran {key}")
    return os.getpid()


@app.tool()
async def touch(name: str, ctx: Context[Any, Any]) -> str:
    """Say that a resource changed, in the ways of both eras."""
    await ctx.notify_resource_updated(f"state://{name}")
    await ctx.session.send_resource_updated(f"state://{name}")
    return name


@app.resource("state://{name}")
def state(name: str) -> str:
    """A state."""
    return name


async def agree(ctx: ServerRequestContext[Any], params: types.SubscribeRequestParams) -> Any:
    """Accept a subscription; the SDK leaves these to the server."""
    return types.EmptyResult()


app._lowlevel_server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, agree)

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    uvicorn.run(
        app.streamable_http_app(max_sessions=None), port=PORT, log_level="error", access_log=False
    )
