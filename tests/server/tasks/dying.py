"""A server whose tasks are on disk, for tests that kill it. Run as a module, it serves HTTP.

    python -m tests.server.tasks.dying FOLDER PORT WORKERS

Each tool writes a line to `FOLDER/effects` when it does what must not be done twice.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcpearl import Context, Server, Tasks
from mcpearl.server.tasks.extension import TasksExtension
from mcpearl.server.tasks.options import TaskBounds
from tests.server.tasks.apps import Name

LEASE = 1.0


def dying_app(folder: Path, *, max_running: int = 1000, lease: float = LEASE) -> Server:
    """A server whose tools leave marks in a folder."""
    app = Server(
        "dying",
        store=f"sqlite:///{folder}/tasks.db",
        state_keys=[b"k" * 32],
        extensions=[TasksExtension(TaskBounds(lease=lease, max_running=max_running))],
        grace=0,
    )
    held = folder / "held"  # while it exists, tools wait

    def effect(key: str) -> None:
        descriptor = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{key}\n".encode())
        os.close(descriptor)

    async def let_go() -> None:
        while held.exists():
            await asyncio.sleep(0.01)

    @app.tool(task=True)
    async def acts(key: str) -> str:
        """Act once; how far it came is not known when its worker dies."""
        effect(key)
        await asyncio.sleep(0.02)
        await let_go()
        return f"acted {key}"

    @app.tool(task=Tasks(restart=True))
    async def repeats(key: str, ctx: Context) -> str:
        """Act as often as needed, but the first step once."""
        await ctx.once("first", lambda: effect(f"once {key}"))
        await asyncio.sleep(0.02)
        await let_go()
        effect(key)
        return f"repeated {key}"

    @app.tool(task=True, annotations={"idempotentHint": True})
    async def idempotent(key: str) -> str:
        """Act, and may be run again because of its annotation."""
        await let_go()
        effect(key)
        return f"done {key}"

    @app.tool(task=True)
    async def asks(key: str, ctx: Context) -> str:
        """Ask, then act."""
        answer = await ctx.elicit("Who?", Name)
        effect(key)
        await asyncio.sleep(0.02)
        return f"{answer.data.name} {key}"

    return app


def effects(folder: Path) -> list[str]:
    """The marks that were left."""
    try:
        return (folder / "effects").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    where, port, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dying_app(where).run("http", port=port, workers=workers)
