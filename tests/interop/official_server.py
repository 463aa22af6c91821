"""A server made with the official Python SDK, for our client to be tried on.

On stdio, or over HTTP at the port that `PORT` in the environment names.
"""

import os
import sys
from typing import Annotated, Any, Literal

import anyio
import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import (
    Context,
    Elicit,
    ElicitationResult,
    Image,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field

NOTE = "official://note"
BYTES = bytes(range(16))
CITIES = ["Hanoi", "Lisbon", "Oslo"]


class AuditParams(types.RequestParams):
    since: int


class Audit(Extension):
    """An extension with a method of its own."""

    identifier = "com.example/audit"

    def methods(self) -> list[MethodBinding]:
        """Return the method."""
        return [MethodBinding("audit/read", AuditParams, self.read)]

    async def read(self, ctx: ServerRequestContext[Any], params: AuditParams) -> dict[str, Any]:
        """Return what was asked, and in which trace."""
        return {"since": params.since, "trace": dict(ctx.meta or {}).get("traceparent")}


server = MCPServer(
    "official",
    version="2.0.0",
    instructions="Made with the official SDK.",
    extensions=[Audit()],
)
state: dict[str, Any] = {"note": "first", "level": "debug", "interrupted": 0}


class Forecast(BaseModel):
    city: str
    days: list[str]
    warm: bool


class Trip(BaseModel):
    city: str = Field(description="Where to", min_length=2)
    days: int = Field(default=3, ge=1, le=30)
    travel_class: Literal["first", "second"] = "second"
    insured: bool = False


# Tools: what they return


@server.tool(title="Add", annotations=types.ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def forecast(city: str, days: int = 2) -> Forecast:
    """What the weather will be."""
    return Forecast(city=city, days=["sun"] * days, warm=True)


@server.tool()
async def echo(text: str) -> str:
    """Give back what was said."""
    return text


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=BYTES, format="png")


@server.tool()
def fail(reason: str) -> str:
    """Fail, as tools may."""
    raise ToolError(f"failed: {reason}")


# Tools: what they say on the way


@server.tool()
async def count(to: int, ctx: Context[Any, Any]) -> str:
    """Count, and tell how far it is."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
    return f"counted to {to}"


@server.tool()
async def chatter(ctx: Context[Any, Any]) -> str:
    """Write to the log."""
    for level, data in (("debug", "a detail"), ("info", {"what": "news"}), ("error", "a problem")):
        if LEVELS.index(level) >= LEVELS.index(state["level"]):
            await ctx.log(level, data, logger_name="official")
    return "said"


@server.tool()
async def sleep(seconds: float, ctx: Context[Any, Any]) -> str:
    """Take a while, and remember having been cancelled."""
    await ctx.report_progress(0)
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        state["interrupted"] += 1
        raise
    return "slept"


@server.tool()
def interrupted() -> int:
    """How many sleeps were cancelled."""
    return state["interrupted"]


@server.tool()
def reflect(ctx: Context[Any, Any]) -> types.CallToolResult:
    """Return the members of `_meta` that are not the protocol's, and some of its own."""
    given = dict(ctx.request_context.meta or {})
    own = {key: given[key] for key in given if key in ("traceparent", "example.com/more")}
    return types.CallToolResult(
        content=[], structured_content={"result": own}, _meta={"example.com/tag": [1]}
    )


# Tools: what they ask. Declared as dependencies, these work in both eras there.


def where_to() -> Elicit[Trip]:
    return Elicit("Where to?", Trip)


def is_it_nice() -> Sample:
    question = types.TextContent(type="text", text="Is it nice there?")
    message = types.SamplingMessage(role="user", content=question)
    return Sample([message], max_tokens=50, system_prompt="Be brief.")


def sum_it_up() -> Sample:
    question = types.TextContent(type="text", text="20 + 22?")
    message = types.SamplingMessage(role="user", content=question)
    tool = types.Tool(name="add", input_schema={"type": "object"})
    choice = types.ToolChoice(mode="required")
    return Sample([message], max_tokens=50, tools=[tool], tool_choice=choice)


def places() -> ListRoots:
    return ListRoots()


@server.tool()
def book(trip: Annotated[ElicitationResult[Trip], Resolve(where_to)]) -> str:
    """Book a trip, after asking where to."""
    if trip.action != "accept":
        return f"not booked: {trip.action}"
    return f"booked {trip.data.days} days in {trip.data.city}, {trip.data.travel_class} class"


@server.tool()
def consult(answer: Annotated[types.CreateMessageResult, Resolve(is_it_nice)]) -> str:
    """Ask the client's model."""
    assert isinstance(answer.content, types.TextContent)
    return f"{answer.model}: {answer.content.text}"


@server.tool()
def delegate(
    answer: Annotated[types.CreateMessageResultWithTools, Resolve(sum_it_up)],
) -> str:
    """Let the client's model choose a tool."""
    (use,) = answer.content if isinstance(answer.content, list) else [answer.content]
    assert isinstance(use, types.ToolUseContent)
    return f"{use.name} {use.input}"


@server.tool()
def workplace(roots: Annotated[types.ListRootsResult, Resolve(places)]) -> list[str]:
    """Ask where the client lets us work."""
    return [str(root.uri) for root in roots.roots]


@server.tool()
def survey(
    roots: Annotated[types.ListRootsResult, Resolve(places)],
    trip: Annotated[Trip, Resolve(where_to)],
    answer: Annotated[types.CreateMessageResult, Resolve(is_it_nice)],
) -> str:
    """Ask three things."""
    assert isinstance(answer.content, types.TextContent)
    return f"{len(roots.roots)} roots, {trip.city}, {answer.content.text}"


@server.tool()
async def pay(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Send the user to a page: by a request in a session, by a result without one."""
    if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        if ctx.input_responses is None:
            page = types.ElicitRequestURLParams(message="Please pay.", url="https://pay.example/42")
            requests: types.InputRequests = {"page": types.ElicitRequest(params=page)}
            return types.InputRequiredResult(input_requests=requests)
        given = ctx.input_responses["page"]
        assert isinstance(given, types.ElicitResult)
        return given.action
    answer = await ctx.elicit_url("Please pay.", "https://pay.example/42", "pay-42")
    await ctx.session.send_elicit_complete("pay-42")
    return answer.action


# Tools: what they change. The eras have different ways to tell, so both are used.


@server.tool()
async def write(text: str, ctx: Context[Any, Any]) -> str:
    """Change the note, and tell who follows it."""
    state["note"] = text
    await ctx.notify_resource_updated(NOTE)
    await ctx.session.send_resource_updated(NOTE)
    return "written"


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    """Add a tool."""
    server.add_tool(lambda: "new", name="grown", description="Was not there before.")
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


# Resources, prompts, completion


@server.resource(NOTE, mime_type="text/plain")
def note() -> str:
    """A text that changes."""
    return state["note"]


@server.resource("official://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    """A few bytes."""
    return BYTES


@server.resource("official://{city}/weather", mime_type="application/json")
def weather(city: str) -> dict[str, str]:
    """The weather of a city."""
    return {"city": city, "sky": "sun"}


@server.prompt(title="Brief")
def brief(city: str, tone: str = "short") -> str:
    """Ask for a weather briefing."""
    return f"Give me a {tone} weather briefing for {city}."


@server.prompt()
def dialogue() -> list[Message]:
    """Messages of both sides."""
    return [UserMessage("What is this?"), AssistantMessage("A note.")]


@server.completion()
async def complete(
    reference: types.PromptReference | types.ResourceTemplateReference,
    argument: types.CompletionArgument,
    context: types.CompletionContext | None,
) -> types.Completion | None:
    if argument.name != "city":
        return None
    found = [city for city in CITIES if city.startswith(argument.value)]
    return types.Completion(values=found, total=len(found), has_more=False)


# Pages, and legacy log levels and subscriptions, which this layer of the SDK leaves to the one below.

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


async def set_level(
    ctx: ServerRequestContext[Any], params: types.SetLevelRequestParams
) -> types.EmptyResult:
    state["level"] = params.level
    return types.EmptyResult()


async def agree(
    ctx: ServerRequestContext[Any],
    params: types.SubscribeRequestParams | types.UnsubscribeRequestParams,
) -> types.EmptyResult:
    return types.EmptyResult()


async def pages(
    ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    """List the tools in pages, which this layer does not make."""
    tools = await server.list_tools()
    start = int(params.cursor or 0) if params is not None else 0
    following = str(start + 5) if start + 5 < len(tools) else None
    return types.ListToolsResult(tools=tools[start : start + 5], next_cursor=following)


below = server._lowlevel_server
below.add_request_handler("tools/list", types.PaginatedRequestParams, pages)
below.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
below.add_request_handler("resources/subscribe", types.SubscribeRequestParams, agree)
below.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, agree)


if __name__ == "__main__":
    print("official is listening", file=sys.stderr)
    if "PORT" in os.environ:
        server.run("streamable-http", port=int(os.environ["PORT"]))
    else:
        server.run()
