"""A machine whose clock is wrong: `shifted_server.py PORT STORE SECONDS`."""

import sys

from mcpearl.runtime import clock
from mcpearl.server.tasks.options import Tasks
from tests.deployment.machines import make_app

if __name__ == "__main__":
    port, store, ahead = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    right = clock.now
    clock.now = lambda: right() + ahead
    app = make_app(store)

    @app.tool(task=Tasks(required=True, restart=True))
    async def job() -> str:
        """Work as a task."""
        return "done"

    @app.tool
    async def touch(name: str) -> str:
        """Change a resource."""
        app.notify_resource_updated(f"config://{name}")
        return "touched"

    app.run("http", port=port)
