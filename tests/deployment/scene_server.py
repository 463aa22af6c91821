"""A machine of the scene: `scene_server.py PORT WORKERS STORE LOG HOST KEPT`, as a process of its own.

Tools note in a file that they ran, so that a call that ran twice is found. KEPT is the seconds after
which everything in the store expires that is not used, so that the end of a scene can be waited for; 0
for the times a deployment has.
"""

import asyncio
import os
import sys

from mcpearl import Context, Server
from mcpearl.server.serving import workers
from mcpearl.server.tasks.options import Tasks
from mcpearl.stores import (
    redis_bus,
    redis_event_steps,
    redis_events,
    redis_recent,
    redis_sessions,
    redis_state,
)

PORT, WORKERS, STORE, LOG = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
HOST, KEPT = sys.argv[5], int(sys.argv[6])
if KEPT:
    for module in (redis_bus, redis_event_steps, redis_events):
        module.KEPT_FOR = KEPT
    redis_state.IDLE = KEPT
    redis_event_steps.LINGER = KEPT // 10
    redis_sessions.YOUNG = float(KEPT)
    redis_recent.REACH = KEPT * 0.8
app = Server("scene", store=STORE, grace=2.0)
workers._YOUNG = 0.0  # a worker that is killed is replaced at once, however often


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
    "Note a key."
    note(f"ran {key}")
    return os.getpid()


@app.tool
async def ask(key: str, ctx: Context) -> str:
    "Ask the client, then note a key."
    note(f"asked {key} {os.getpid()}")
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    answer = await ctx.elicit(f"Which? {key}", schema)
    heard(key, (answer.data or {}).get("a"))
    note(f"ran {key}")
    return answer.action


@app.tool
async def sample(key: str, ctx: Context) -> str:
    "Ask the client's model, then note a key."
    note(f"asked {key} {os.getpid()}")
    answer = await ctx.sample(f"Shall we? {key}", max_tokens=10)
    heard(key, getattr(answer.content, "text", None))
    note(f"ran {key}")
    return answer.model


@app.tool
async def count(key: str, ctx: Context) -> int:
    "Report progress for a while."
    note(f"ran {key}")
    for number in range(5):
        await ctx.progress(number + 1, 5)
        await asyncio.sleep(0.05)
    return os.getpid()


@app.tool
async def leave(key: str, ctx: Context) -> int:
    "Send the client away while a key is noted."
    ctx.close_stream(retry_ms=50)
    await asyncio.sleep(0.1)
    note(f"ran {key}")
    return os.getpid()


@app.tool(task=Tasks(required=True, restart=False, **({"ttl": float(KEPT)} if KEPT else {})))
async def job(key: str) -> str:
    "Work as a task."
    note(f"ran {key}")
    await asyncio.sleep(0.2)
    return key


@app.tool
async def touch(name: str) -> str:
    "Say that a resource changed."
    app.notify_resource_updated(f"state://{name}")
    return name


@app.resource("state://{name}")
def state(name: str) -> str:
    return name


if __name__ == "__main__":
    app.run(
        "http",
        host=HOST,
        port=PORT,
        workers=WORKERS,
        allowed_hosts=["127.0.0.1:*", f"{HOST}:*"],
        **({"idle_timeout": KEPT} if KEPT else {}),
    )
