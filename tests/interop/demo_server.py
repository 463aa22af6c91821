"""The mcpearl server other people's clients are tried on: a little of everything.

On stdio, or over HTTP at the port that `PORT` in the environment names.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from mcpearl import Context, Media, Server, ToolError
from mcpearl.server.extensions import ServerExtension, method
from mcpearl.types import (
    Annotations,
    CallToolResult,
    EmbeddedResource,
    PromptMessage,
    RequestParams,
    ResourceContents,
    ResourceLink,
    Result,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

NOTE = "demo://note"
PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
SKIES = {"Hanoi": "rain", "Lisbon": "sun", "Oslo": "snow"}
STREETS = {"Lisbon": ["Rua Augusta"], "Oslo": ["Karl Johans gate", "Kirkeveien"]}


class AuditParams(RequestParams, kw_only=True):
    since: int


class AuditExtension(ServerExtension):
    """An extension with a method of its own."""

    identifier = "com.example/audit"

    @method("audit/read", AuditParams, undeclared=True)  # some clients declare none in a session
    async def read(self, params: AuditParams, ctx: Context) -> Result:
        """Return what was asked, and in which trace."""
        return Result(extra={"since": params.since, "trace": ctx.meta.get("traceparent")})


app = Server(
    "demo",
    version="1.2.3",
    title="Demo",
    instructions="Try everything.",
    page_size=5,  # so that every list of more than five has pages
    extensions=[AuditExtension()],
)
state = {"note": "first", "interrupted": 0, "booked": 0}


@dataclass
class Forecast:
    """The weather of some days in one place."""

    city: str
    days: list[str]
    warm: bool


@dataclass
class Trip:
    """What the booking form asks for."""

    city: str
    days: Annotated[int, Meta(ge=1, le=30)] = 3
    travel_class: Literal["first", "second"] = "second"
    insured: bool = False


# Tools: what they return


@app.tool(title="Add", annotations={"readOnlyHint": True, "idempotentHint": True})
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One of them.
        b: The other.
    """
    return a + b


@app.tool
def forecast(city: str, days: int = 2) -> Forecast:
    """What the weather will be."""
    sky = SKIES.get(city, "clouds")
    return Forecast(city, [sky] * days, warm=sky == "sun")


@app.tool
async def echo(text: str) -> str:
    """Give back what was said."""
    return text


@app.tool
def show() -> list[TextContent | Media | ResourceLink | EmbeddedResource]:
    """One block of every kind."""
    return [
        TextContent(text="look", annotations=Annotations(audience=["user"], priority=0.5)),
        Media(PIXEL, "image/png"),
        Media(b"RIFF", "audio/wav"),
        ResourceLink(uri=NOTE, name="note"),
        EmbeddedResource(resource=ResourceContents(uri="demo://inside", text="inside")),
    ]


@app.tool
def fail(reason: str) -> str:
    """Fail, as tools may."""
    raise ToolError(f"failed: {reason}")


# Tools: what they say on the way


seen: asyncio.Queue[None] = asyncio.Queue()


@app.tool
async def count(to: int, ctx: Context, pause: float = 0, in_step: bool = False) -> str:
    """Count, and tell how far it is. In step, it goes on when the client has called it with 0."""
    if to == 0:
        seen.put_nowait(None)
    for number in range(1, to + 1):
        await ctx.progress(number, to, f"at {number}")
        await (seen.get() if in_step else asyncio.sleep(pause))
    return f"counted to {to}"


@app.tool
async def chatter(ctx: Context) -> str:
    """Write to the log at three levels."""
    await ctx.debug("a detail", logger="demo")
    await ctx.info({"what": "news"}, logger="demo")
    await ctx.error("a problem", logger="demo")
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
    return state["interrupted"]


@app.tool
async def reflect(ctx: Context) -> CallToolResult:
    """Return the members of `_meta` that are not the protocol's, and some of its own."""
    own = {
        key: value
        for key, value in ctx.meta.items()
        if not key.startswith("io.modelcontextprotocol")
    }
    own.pop("progressToken", None)
    return CallToolResult(
        content=[], structured_content={"result": own}, meta={"example.com/tag": [1]}
    )


# Tools: what they ask


@app.tool
async def book(ctx: Context) -> str:
    """Book a trip: a form, then a question of yes or no, and booked only once."""
    trip = await ctx.elicit("Where to?", Trip)
    if not trip.accepted:
        return f"not booked: {trip.action}"

    def reserve() -> int:
        state["booked"] += 1
        return state["booked"]

    number = await ctx.once("booking", reserve)
    sure = await ctx.elicit(f"{trip.data.days} days in {trip.data.city}. Sure?")
    done = "booked" if sure.accepted else "dropped"
    return f"{done} {number}: {trip.data.travel_class} class, insured {trip.data.insured}"


@app.tool
async def pay(ctx: Context) -> str:
    """Send the user to a page for what must not pass through the client."""
    answer = await ctx.elicit_url("Please pay.", "https://pay.example/42", elicitation_id="pay-42")
    return answer.action


@app.tool
async def consult(question: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(question, max_tokens=50, system_prompt="Be brief.")
    assert isinstance(answer.content, TextContent)
    return f"{answer.model}: {answer.content.text}"


@app.tool
async def delegate(question: str, ctx: Context) -> str:
    """Let the client's model use a tool of ours, and go on with what it gave."""
    tools = [Tool(name="add", input_schema={"type": "object"})]
    asked = SamplingMessage(role="user", content=TextContent(text=question))
    first = await ctx.sample([asked], tools=tools, tool_choice=ToolChoice(mode="required"))
    (use,) = first.content if isinstance(first.content, list) else [first.content]
    assert isinstance(use, ToolUseContent)
    outcome = TextContent(text=str(add(**use.input)))
    second = await ctx.sample(
        [
            asked,
            SamplingMessage(role="assistant", content=[use]),
            SamplingMessage(
                role="user",
                content=[ToolResultContent(tool_use_id=use.id, content=[outcome])],
            ),
        ],
        tools=tools,
    )
    (answer,) = second.content if isinstance(second.content, list) else [second.content]
    assert isinstance(answer, TextContent)
    return answer.text


@app.tool
async def workplace(ctx: Context) -> list[str]:
    """Ask where the client lets us work."""
    return [root.uri for root in await ctx.roots()]


@app.tool
async def survey(ctx: Context) -> str:
    """Ask three things at once."""
    roots, trip, answer = await asyncio.gather(
        ctx.roots(), ctx.elicit("Where to?", Trip), ctx.sample("Is it nice there?")
    )
    assert isinstance(answer.content, TextContent)
    return f"{len(roots)} roots, {trip.data.city}, {answer.content.text}"


# Tools: what they change


@app.tool
def write(text: str) -> str:
    """Change the note, and tell who follows it."""
    state["note"] = text
    app.notify_resource_updated(NOTE)
    return "written"


@app.tool
def grow() -> str:
    """Add a tool, a resource and a prompt."""
    app.add_tool(lambda: "new", name="grown", description="Was not there before.")
    app.add_resource("demo://grown", lambda: "new", name="grown")
    app.add_prompt(lambda: "new", name="grown")
    return "grown"


# Resources


@app.resource(NOTE, title="Note", mime_type="text/plain")
def note() -> str:
    """A text that changes."""
    return state["note"]


@app.resource("demo://pixel", mime_type="image/png", size=len(PIXEL))
def pixel() -> bytes:
    """A few bytes."""
    return PIXEL


@app.resource("demo://{city}/weather", mime_type="application/json")
def weather(city: str) -> dict[str, str]:
    """The weather of a city."""
    return {"city": city, "sky": SKIES.get(city, "clouds")}


@app.resource("demo://{city}/secret")
async def secret(city: str, ctx: Context) -> str:
    """Something one has to agree to before reading it."""
    answer = await ctx.elicit(f"Read the secret of {city}?")
    return f"{city} {answer.action}"


# Prompts and completion


@app.prompt(title="Brief")
def brief(city: str, tone: str = "short") -> str:
    """Ask for a weather briefing."""
    return f"Give me a {tone} weather briefing for {city}."


@app.prompt
def dialogue() -> list[PromptMessage]:
    """Messages of both sides."""
    contents = ResourceContents(uri=NOTE, mime_type="text/plain", text="a note")
    return [
        PromptMessage(role="user", content=TextContent(text="What is this?")),
        PromptMessage(role="user", content=EmbeddedResource(resource=contents)),
        PromptMessage(role="assistant", content=TextContent(text="A note.")),
    ]


@app.prompt
async def personal(ctx: Context) -> str:
    """A prompt that asks before it speaks."""
    trip = await ctx.elicit("Where to?", Trip)
    return f"I want to go to {trip.data.city}."


@app.prompt
def visit(city: str, street: str) -> str:
    """Ask for the way."""
    return f"How do I get to {street} in {city}?"


@app.complete("brief", "city")
@app.complete("demo://{city}/weather", "city")
def cities(typed: str) -> list[str]:
    """Cities that begin like this."""
    return [city for city in SKIES if city.startswith(typed)]


@app.complete("visit", "street")
def streets(typed: str, others: dict[str, str]) -> list[str]:
    """Streets of the city that was chosen before."""
    return [street for street in STREETS.get(others.get("city", ""), []) if typed in street]


if __name__ == "__main__":
    print("demo is listening", file=sys.stderr)
    if "PORT" in os.environ:
        app.run("http", port=int(os.environ["PORT"]), http_sse=True)
    else:
        app.run()
