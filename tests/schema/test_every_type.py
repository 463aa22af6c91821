"""A tool for every kind of type: what it publishes, and whether it takes all that fits and nothing else.

The snapshot is what hosts and models read of the types. A change of it is a change for all servers.
"""

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from mcpearl import Client, Server
from mcpearl.testing import Snapshot, explore


class Metal(enum.Enum):
    GOLD = "gold"
    IRON = "iron"


@dataclass
class Pearl:
    weight: float
    flaws: list[str] = field(default_factory=list)


class Oyster(msgspec.Struct, tag="oyster", tag_field="kind"):
    pearl: Pearl
    depth: Annotated[int, msgspec.Meta(ge=0, le=40)] = 3


class Mussel(msgspec.Struct, tag="mussel", tag_field="kind"):
    colour: Literal["blue", "black"]


class Reef(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1, max_length=20)
    found: date | None = None


class Voyage(TypedDict):
    days: int
    crew: NotRequired[list[str]]


class Place(NamedTuple):
    north: float
    east: float


@pytest.fixture
def mcp_app() -> Server:
    app = Server("types", version="1")

    @app.tool
    def numbers(
        whole: int, real: float, exact: Decimal, few: Annotated[int, msgspec.Meta(gt=1, lt=9)]
    ) -> bool:
        return few in range(2, 9)

    @app.tool
    def texts(
        any: str,
        code: Annotated[str, msgspec.Meta(pattern="^[A-Z]{2}$")],
        metal: Metal,
        size: Literal["s", "m", 7],
        key: UUID,
    ) -> str:
        return f"{any}{code}{metal.value}{size}{key}"

    @app.tool
    def times(at: datetime, day: date, hour: time, lasting: timedelta) -> str:
        return f"{at.isoformat()}{day.isoformat()}{hour.isoformat()}{lasting!r}"

    @app.tool
    def collections(
        names: list[str],
        pair: tuple[int, str],
        several: set[int],
        weights: dict[str, float],
        deep: list[dict[str, list[int]]],
    ) -> list[str]:
        return [*names, *weights]

    @app.tool
    def records(shell: Oyster | Mussel, reef: Reef, voyage: Voyage, place: Place) -> Pearl:
        return shell.pearl if isinstance(shell, Oyster) else Pearl(1.0)

    @app.tool
    def choices(
        mixed: int | str, maybe: bool | None = None, whatever: Any = None, many: int = 7
    ) -> dict[str, Any]:
        return {"mixed": mixed, "maybe": maybe, "many": many}

    return app


async def test_what_types_publish(mcp_client: Client, mcp_snapshot: Snapshot):
    await mcp_snapshot.check(mcp_client)


@pytest.mark.mcpearl(era=["legacy", "modern"])
async def test_all_that_fits_is_taken_and_nothing_else(mcp_client: Client):
    report = await explore(mcp_client, examples=15)
    assert [str(finding) for finding in report.findings] == []
