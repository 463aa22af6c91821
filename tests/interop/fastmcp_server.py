"""A FastMCP server with what the demo server has, run by the interpreter of FastMCP's environment.

On stdio, or over HTTP at the port that `PORT` in the environment names. Its tools ask in both eras:
by requests in a session, and by results that require input without one.
"""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import mcp_types as types  # type: ignore[import-not-found,unused-ignore]
from fastmcp import Context, FastMCP  # type: ignore[import-not-found]
from fastmcp.server.extensions import (  # type: ignore[import-not-found]
    MethodBinding,
    ServerExtension,
)
from fastmcp.tools.base import ToolResult  # type: ignore[import-not-found]
from mcp.server.subscriptions import (  # type: ignore[import-not-found,unused-ignore]
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.message import (  # type: ignore[import-not-found,unused-ignore]
    ServerMessageMetadata,
)
from mcp_types.version import (  # type: ignore[import-not-found,unused-ignore]
    MODERN_PROTOCOL_VERSIONS,
)

NOTE = "demo://note"
STREETS = ["Karl Johans gate", "Kirkeveien"]
TRIP = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "insured": {"type": "boolean"}},
    "required": ["city"],
}
ANSWERS: dict[str, Any] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}

app = FastMCP("demo", list_page_size=2)
bus = InMemorySubscriptionBus()
state: dict[str, Any] = {"note": "first", "interrupted": 0, "booked": 0}


# Tools: what they return, and what they say on the way


@app.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@app.tool
def fail(reason: str) -> str:
    """Fail, as tools may."""
    raise ValueError(f"failed: {reason}")


@app.tool
async def count(ctx: Context, to: int = 3, pause: float = 0.05) -> str:
    """Count, and tell how far it is."""
    for step in range(to):
        await ctx.report_progress(step + 1, to)
        await asyncio.sleep(pause)
    return f"counted to {to}"


@app.tool
async def chatter(ctx: Context) -> str:
    """Write to the log at three levels."""
    await ctx.debug("a detail")
    await ctx.info("news")
    await ctx.error("a problem")
    return "said"


@app.tool
async def sleep(seconds: float) -> str:
    """Take a while, and remember having been cancelled."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        state["interrupted"] += 1
        raise
    return "slept"


@app.tool
def interrupted() -> int:
    """How many sleeps were cancelled."""
    return int(state["interrupted"])


@app.tool
async def reflect(ctx: Context) -> ToolResult:
    """Return the members of `_meta` that are not the protocol's, and some of its own."""
    given = dict(ctx.request_context.meta or {})
    own = {
        k: v for k, v in given.items() if not k.startswith(("io.modelcontextprotocol", "progress"))
    }
    return ToolResult(structured_content={"result": own}, meta={"example.com/tag": [1]})


# Tools: what they ask


def is_modern(ctx: Context) -> bool:
    return ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS


async def put(ctx: Context, question: Any) -> Any:
    """Put a question in a session."""
    about = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(question, ANSWERS[question.method], metadata=about)


async def asked(ctx: Context, questions: dict[str, Any], end: Callable[..., Any]) -> Any:
    """Put questions, and end with their answers; without a session the tool is called again."""
    if not is_modern(ctx):
        answers = await asyncio.gather(*(put(ctx, each) for each in questions.values()))
        return end(**dict(zip(questions, answers, strict=True)))
    if ctx.input_responses is None:
        return types.InputRequiredResult(input_requests=questions)
    return end(**ctx.input_responses)


def form(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def model(question: str) -> types.CreateMessageRequest:
    content = types.TextContent(type="text", text=question)
    message = types.SamplingMessage(role="user", content=content)
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=50)
    return types.CreateMessageRequest(params=params)


def where_to() -> types.ElicitRequest:
    return form("Where to?", TRIP)


def sure(trip: dict[str, Any]) -> types.ElicitRequest:
    return form(f"3 days in {trip['city']}. Sure?", {"type": "object", "properties": {}})


def booked(trip: dict[str, Any]) -> str:
    state["booked"] += 1
    return f"booked {state['booked']}: second class, insured {trip['insured']}"


@app.tool(output_schema=None)
async def book(ctx: Context) -> Any:
    """Ask where to, then whether that is meant."""
    if not is_modern(ctx):
        trip = (await put(ctx, where_to())).content
        await put(ctx, sure(trip))
        return booked(trip)
    if ctx.input_responses is None:
        return types.InputRequiredResult(input_requests={"where": where_to()})
    if ctx.request_state is None:
        trip = ctx.input_responses["where"].content
        requests = {"sure": sure(trip)}
        return types.InputRequiredResult(input_requests=requests, request_state=json.dumps(trip))
    return booked(json.loads(ctx.request_state))


@app.tool(output_schema=None)
async def pay(ctx: Context) -> Any:
    """Send the user to a page."""
    id = None if is_modern(ctx) else "pay-42"
    params = types.ElicitRequestURLParams(
        message="Please pay.", url="https://pay.example/42", elicitation_id=id
    )
    return await asked(ctx, {"page": types.ElicitRequest(params=params)}, lambda page: page.action)


@app.tool(output_schema=None)
async def consult(question: str, ctx: Context) -> Any:
    """Ask the client's model."""
    return await asked(
        ctx, {"said": model(question)}, lambda said: f"{said.model}: {said.content.text}"
    )


@app.tool(output_schema=None)
async def workplace(ctx: Context) -> Any:
    """Ask where the client lets us work."""

    def end(roots: types.ListRootsResult) -> ToolResult:
        return ToolResult(structured_content={"result": [str(each.uri) for each in roots.roots]})

    return await asked(ctx, {"roots": types.ListRootsRequest()}, end)


@app.tool(output_schema=None)
async def survey(ctx: Context) -> Any:
    """Ask three things at once."""
    questions = {
        "roots": types.ListRootsRequest(),
        "where": where_to(),
        "said": model("Is it nice there?"),
    }

    def end(roots: Any, where: Any, said: Any) -> str:
        return f"{len(roots.roots)} roots, {where.content['city']}, {said.content.text}"

    return await asked(ctx, questions, end)


# Tools: what they change. FastMCP announces nothing of this by itself.


@app.tool
async def write(text: str, ctx: Context) -> str:
    """Change the note, and tell who follows it."""
    state["note"] = text
    if is_modern(ctx):
        await bus.publish(ResourceUpdated(uri=NOTE))
    else:
        await ctx.session.send_resource_updated(NOTE)
    return "written"


@app.tool
async def grow(ctx: Context) -> str:
    """Add a tool."""
    app.tool(lambda: "new", name="grown")
    if is_modern(ctx):
        await bus.publish(ToolsListChanged())
    else:
        await ctx.send_notification(types.ToolListChangedNotification())
    return "grown"


# Resources, prompts, completion


@app.resource(NOTE)
def note() -> str:
    """A note."""
    return str(state["note"])


@app.resource("demo://pixel", mime_type="image/png")
def pixel() -> bytes:
    """A few bytes."""
    return bytes(range(16))


@app.resource("demo://{city}/weather")
def weather(city: str) -> str:
    """The weather of a city."""
    return f"snow in {city}"


@app.prompt
def brief(city: str) -> str:
    """A prompt."""
    return f"Give me a short weather briefing for {city}."


@app.prompt
def visit(city: str, street: str) -> str:
    """Ask for the way."""
    return f"How do I get to {street} in {city}?"


@app.completion
async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    """Complete the name of a street."""
    return [each for each in STREETS if each.startswith(argument.value)]


# An extension, and subscriptions, which FastMCP leaves to the SDK below it


class AuditParams(types.RequestParams):  # type: ignore[misc,unused-ignore]
    since: int


class FastMcpAudit(ServerExtension):  # type: ignore[misc]
    """An extension with a method of its own."""

    identifier = "com.example/audit"

    def methods(self) -> Sequence[MethodBinding]:
        """Return the method."""
        return [MethodBinding("audit/read", AuditParams, self.read)]

    async def read(self, ctx: Any, params: AuditParams) -> dict[str, Any]:
        """Return what was asked, and in which trace."""
        return {"since": params.since, "trace": dict(ctx.meta or {}).get("traceparent")}


async def agree(ctx: Any, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


app.add_extension(FastMcpAudit())
below = app._mcp_server
below.add_request_handler("resources/subscribe", types.SubscribeRequestParams, agree)
below.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, agree)
below.add_request_handler(
    "subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(bus)
)


if __name__ == "__main__":
    port = os.environ.get("PORT")
    if port is None:
        app.run(show_banner=False)
    else:
        app.run(transport="http", host="127.0.0.1", port=int(port), show_banner=False)
