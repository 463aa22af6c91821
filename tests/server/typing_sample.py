"""What people write, checked by mypy in strict mode: every `assert_type` is what they would expect."""

import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

from mcpearl import (
    AssistantMessage,
    Context,
    Depends,
    Elicited,
    Image,
    Message,
    Server,
    ToolResult,
    UserMessage,
)
from mcpearl.types import TextContent


@dataclass
class Database:
    rows: int


@dataclass
class City:
    name: str


class Size(enum.Enum):
    SMALL = "small"


@asynccontextmanager
async def lifespan(app: Server) -> AsyncIterator[Database]:
    yield Database(3)


app = Server("typed", lifespan=lifespan, on_duplicate="error", lenient=True)


async def connect() -> AsyncIterator[Database]:
    yield Database(1)


@app.tool
async def plain(a: int, ctx: Context) -> str:
    assert_type(ctx.lifespan, Any)
    return str(a)


@app.tool("named", title="Named")
async def named(ctx: Context[Database], db: Database = Depends(connect)) -> int:
    assert_type(ctx.lifespan, Database)
    await ctx.report_progress(1, 2, "half")
    await ctx.info("started")
    return ctx.lifespan.rows + db.rows


@app.tool(annotations={"readOnlyHint": True})
def annotated(db: Annotated[Database, Depends(connect)]) -> ToolResult:
    return ToolResult("text", structured_content=db)


@app.tool
async def ask(ctx: Context) -> str:
    city = await ctx.elicit("Where?", City)
    assert_type(city, Elicited[City])
    assert_type(city.data, City)
    assert_type((await ctx.elicit("Where?", response_type=City)).data, City)
    assert_type((await ctx.elicit("Who?", str)).data, str)
    assert_type((await ctx.elicit("How many?", response_type=int)).data, int)
    assert_type((await ctx.elicit("Sure?", bool)).data, bool)
    assert_type((await ctx.elicit("Which?", Size)).data, Size)
    assert_type((await ctx.elicit("Fine?")).data, dict[str, Any])
    anything = await ctx.elicit("Which?", Literal["a", "b"])
    assert_type(anything.data, Any)
    await ctx.session.set("city", city.data.name)
    assert_type(ctx.session_id, str | None)
    assert_type(ctx.headers.get("authorization"), str | None)
    return city.data.name


@app.tool
def picture() -> list[TextContent | Image]:
    return [TextContent(type="text", text="x"), Image("a.png")]


@app.prompt("talk")
def talk(about: str) -> list[Message]:
    return [UserMessage(about), AssistantMessage("yes")]


def unchanged() -> None:
    """Decorators keep the signature."""
    assert_type(picture(), list[TextContent | Image])
    assert_type(talk("x"), list[Message])
