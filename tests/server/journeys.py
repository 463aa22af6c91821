"""What tests of questions ask for, as an author may describe it: a dataclass, a model, a schema."""

import dataclasses

import pydantic


@dataclasses.dataclass
class Journey:
    city: str
    days: int = 1


class JourneyModel(pydantic.BaseModel):
    city: str
    days: int = 1


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city"],
}
