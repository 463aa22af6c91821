"""JSON Schemas in few words, as a signature shows them."""

from typing import Any


def parameters_of(schema: Any) -> str:
    """Return the parameters of a tool: `city: string, days=3`."""
    properties = members(schema)
    required = schema.get("required") or () if isinstance(schema, dict) else ()
    return ", ".join(_shown(name, each, name in required) for name, each in properties.items())


def members(schema: Any) -> dict[str, Any]:
    """Return the properties of an object's schema."""
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _shown(name: str, schema: Any, required: bool) -> str:
    if required:
        return f"{name}: {type_name(schema)}"
    if isinstance(schema, dict) and "default" in schema:
        import json

        return f"{name}={json.dumps(schema['default'], ensure_ascii=False)}"
    return f"{name}?: {type_name(schema)}"


def type_name(schema: Any) -> str:
    """Return the type of a value in a word or two."""
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return "|".join(str(each) for each in schema["enum"][:5])
    if "const" in schema:
        return str(schema["const"])
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return "|".join(dict.fromkeys(type_name(each) for each in schema[word][:5]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return "|".join(map(str, kind))
    if kind == "array" and "items" in schema:
        return f"{type_name(schema['items'])}[]"
    return str(kind)
