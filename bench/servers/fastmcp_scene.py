"""A process of the scene on FastMCP: ``python fastmcp_scene.py <port> <log>``.

The tools are those of `tests/deployment/scene_server.py`, without tasks. There are no subscriptions to
resources in FastMCP, and a tool can ask its client in the legacy era only.
"""

import asyncio
import logging
import os
import sys
from dataclasses import dataclass

import mcp_types as types
import uvicorn
from fastmcp import Context, FastMCP

PORT, LOG = int(sys.argv[1]), sys.argv[2]
app = FastMCP("scene", version="1.0.0")


@dataclass
class Answer:
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


@app.tool
async def record(key: str) -> int:
    """Note a key."""
    note(f"ran {key}")
    return os.getpid()


@app.tool
async def ask(key: str, ctx: Context) -> str:
    """Ask the client, then note a key."""
    note(f"asked {key} {os.getpid()}")
    answer = await ctx.elicit(f"Which? {key}", Answer)
    heard(key, answer.data.a if answer.action == "accept" else None)
    note(f"ran {key}")
    return answer.action


@app.tool
async def sample(key: str, ctx: Context) -> str:
    """Ask the client's model, then note a key."""
    note(f"asked {key} {os.getpid()}")
    question = types.TextContent(type="text", text=f"Shall we? {key}")
    message = types.SamplingMessage(role="user", content=question)
    answer = await ctx.session.create_message([message], max_tokens=10)
    heard(key, getattr(answer.content, "text", None))
    note(f"ran {key}")
    return answer.model


@app.tool
async def count(key: str, ctx: Context) -> int:
    """Report progress for a while."""
    note(f"ran {key}")
    for number in range(5):
        await ctx.report_progress(number + 1, 5)
        await asyncio.sleep(0.05)
    return os.getpid()


@app.tool
async def leave(key: str, ctx: Context) -> int:
    """Send the client away while a key is noted; without an event store this does nothing."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    note(f"ran {key}")
    return os.getpid()


@app.tool
async def touch(name: str, ctx: Context) -> str:
    """Say that a resource changed."""
    await ctx.session.send_resource_updated(f"state://{name}")
    return name


@app.resource("state://{name}")
def state(name: str) -> str:
    """A state."""
    return name


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    uvicorn.run(app.http_app(path="/mcp"), port=PORT, log_level="error", access_log=False)
