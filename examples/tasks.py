"""Work that outlives its request: a task that reports, asks, and survives a restart of its server."""

import asyncio
import tempfile
from dataclasses import dataclass

from mcpearl import Client, Context, Server, Tasks
from mcpearl.types import ElicitRequestParams


@dataclass
class Consent:
    """What the form asks for."""

    publish: bool


def make_server(folder: str) -> Server:
    """A server that keeps its tasks in a file."""
    app = Server("reports", store=f"sqlite:///{folder}/tasks.db")

    @app.tool(task=Tasks(ttl=600, restart=True))
    async def report(year: int, ctx: Context) -> str:
        """Write the report of a year, and ask before it is published."""
        for quarter in range(1, 5):
            await ctx.once(f"quarter {quarter}", lambda: asyncio.sleep(0.05))
            await ctx.progress(quarter, 4, f"quarter {quarter} of {year}")
        answer = await ctx.elicit(f"Publish the report of {year}?", Consent)
        published = answer.accepted and answer.data.publish
        return f"The report of {year}, {'published' if published else 'kept'}"

    return app


def consent(form: ElicitRequestParams) -> dict[str, bool]:
    """Play the user."""
    print("asked:", form.message)
    return {"publish": True}


async def main() -> None:
    """Start a task, stop the server, and collect the result from its successor."""
    with tempfile.TemporaryDirectory() as folder:
        async with Client(make_server(folder), elicitation=consent) as client:
            task = await client.start_task("report", {"year": 2025})
            print("first server:", (await task.status()).status)
        async with Client(make_server(folder), elicitation=consent) as client:
            result = await client.task(task.id).result()
            print("second server:", result.structured_content)


if __name__ == "__main__":
    asyncio.run(main())
