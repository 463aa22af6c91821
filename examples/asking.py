"""A tool that asks the user and a client that answers, before and after 2026-07-28 with the same code."""

import asyncio
from dataclasses import dataclass

from mcpearl import Client, Context, Server
from mcpearl.types import ElicitRequestParams

app = Server("travel", version="1.0.0")


@dataclass
class Trip:
    """What the form asks for."""

    city: str
    days: int = 3


@app.tool
async def book(ctx: Context) -> str:
    """Book a trip, after asking where to."""
    answer = await ctx.elicit("Where do you want to go?", Trip)
    if not answer.accepted:
        return "Nothing booked."
    number = await ctx.once("booking", lambda: "B-1001")  # once, though `book` runs again
    sure = await ctx.elicit(
        f"{answer.data.days} days in {answer.data.city}, number {number}. Sure?"
    )
    return f"Booked {number}." if sure.accepted else f"Cancelled {number}."


def fill_in(form: ElicitRequestParams) -> dict[str, str] | bool:
    """Play the user."""
    print("asked:", form.message)
    return (
        {"city": "Lisbon"} if form.requested_schema and form.requested_schema.properties else True
    )


async def main() -> None:
    """Book with a session (2025-11-25), then without (2026-07-28)."""
    for version in ("2025-11-25", "2026-07-28"):
        async with Client(app, protocol=version, elicitation=fill_in) as client:
            result = await client.call_tool("book")
            print(f"{client.era}:", result.structured_content)


if __name__ == "__main__":
    asyncio.run(main())
