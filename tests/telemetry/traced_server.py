"""A server whose tools make spans and call another server; everything is set by the environment."""

import asyncio
import logging
import sys

from opentelemetry import trace

from mcpearl import Client, Context, Gateway, Isolate, Server, ToolError

app = Server(sys.argv[1], log="json")
tracer = trace.get_tracer("the application")


@app.tool
async def forward(url: str) -> str:
    """Call a tool of another server."""
    with tracer.start_as_current_span("look around"):
        async with Client(url) as client:
            return (await client.call_tool("work")).text


@app.tool
def work() -> str:
    """Work in a thread."""
    with tracer.start_as_current_span("in a thread"):
        logging.getLogger("mcpearl.application").warning("working")
        return "done"


@app.tool(task=True)
async def long() -> str:
    """Work as a task."""
    with tracer.start_as_current_span("in a task"):
        await asyncio.sleep(0)
        return "done at last"


@app.tool
async def fail() -> str:
    """Fail."""
    raise ToolError("no")


@app.tool
async def ask(ctx: Context) -> str:
    """Ask the client."""
    return (await ctx.sample("why?")).model


@app.tool(isolate=Isolate(processes=1))
def alone(number: int) -> int:
    """Work in a process of its own."""
    with tracer.start_as_current_span("in isolation"):
        return number + 1


if __name__ == "__main__":
    if len(sys.argv) > 3:
        app = Gateway({"server": sys.argv[3]}, name=sys.argv[1], eager=True)
    app.run("http", port=int(sys.argv[2]))
