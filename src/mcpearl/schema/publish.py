"""Makes the published JSON Schema of a type.

The schema of arguments accepts everything the decoder accepts: where msgspec accepts more than its
own schema says (repeated items in a set, a number for a `Decimal`), this schema does too. The schema
of results promises everything that the encoder guarantees.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect as mi

from mcpearl.schema.adapt import Adapter
from mcpearl.schema.stand_ins import (
    Choice,
    Constructed,
    OneOf,
    Recursive,
    Twin,
    encode_hook,
    is_path,
)
from mcpearl.schema.written_order import choices_as_written, fields_as_written

__all__ = ["NoJsonForm", "Publisher", "default_of"]


class NoJsonForm(TypeError):
    """A type in an annotation has no JSON form."""

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self.kind = kind


class Publisher:
    """Makes the schemas of one document. Named types are put in `defs` and referred to."""

    __slots__ = ("_names", "adapt", "defs", "output")

    def __init__(self, *, output: bool = False) -> None:
        self.output = output
        #: Rewrites an annotation for msgspec; a record is the same one in the whole document.
        self.adapt = Adapter().adapt
        self.defs: dict[str, dict[str, Any]] = {}
        self._names: dict[Any, str] = {}

    def schema(self, annotation: Any) -> dict[str, Any]:
        """Return the schema of an annotation returned by `adapt`."""
        return choices_as_written(self._of(mi.type_info(annotation)), annotation)

    def _of(self, node: mi.Type) -> dict[str, Any]:
        match node:
            case mi.Metadata(type=inner, extra_json_schema=extra):
                return {**self._of(inner), **(extra or {})}
            case mi.AnyType() | mi.RawType():
                return {}
            case mi.NoneType():
                return {"type": "null"}
            case mi.BoolType():
                return {"type": "boolean"}
            case mi.IntType():
                return {"type": "integer", **_bounds(node)}
            case mi.FloatType():
                return {"type": "number", **_bounds(node)}
            case mi.StrType(pattern=pattern):
                matching = {} if pattern is None else {"pattern": pattern}
                return {"type": "string", **_lengths(node, "Length"), **matching}
            case mi.BytesType() | mi.ByteArrayType() | mi.MemoryViewType():
                return {"type": "string", "contentEncoding": "base64", **_base64_lengths(node)}
            case mi.DateTimeType(tz=tz):
                return self._moment("date-time", tz)
            case mi.TimeType(tz=tz):
                return self._moment("time", tz)
            case mi.DateType():
                return {"type": "string", "format": "date"}
            case mi.TimeDeltaType():
                return {"type": "string", "format": "duration"}
            case mi.UUIDType():
                return {"type": "string", "format": "uuid"}
            case mi.DecimalType():
                text = {"type": "string", "format": "decimal"}
                return text if self.output else {"anyOf": [{"type": "number"}, text]}
            case mi.EnumType(cls=cls):
                return _enumerated(member.value for member in cls)
            case mi.LiteralType(values=values):
                return _enumerated(values)
            case mi.UnionType(types=types):
                return self._any_of(self._of(each) for each in types)
            case mi.CustomType(cls=cls):
                return self._custom(cls)
            case mi.CollectionType():
                return self._array(node)
            case mi.TupleType(item_types=types):
                items = [self._of(each) for each in types]
                return {"type": "array", **_exactly(items, len(items))}
            case mi.DictType():
                return self._mapping(node)
            case mi.StructType() | mi.DataclassType() | mi.TypedDictType() | mi.NamedTupleType():
                return self._named(node)
            case _:
                raise NoJsonForm(node)

    def _moment(self, name: str, tz: bool | None) -> dict[str, Any]:
        # Without `tz=True` a result may be a naive time, which the format does not allow. For an
        # argument the format is only an annotation, and the best description of what is expected.
        exact = tz is True or (tz is None and not self.output)
        return {"type": "string", "format": name} if exact else {"type": "string"}

    def _any_of(self, options: Iterable[dict[str, Any]]) -> dict[str, Any]:
        flat: list[dict[str, Any]] = []
        for option in options:
            for each in option["anyOf"] if option.keys() == {"anyOf"} else (option,):
                if each not in flat:
                    flat.append(each)
        return flat[0] if len(flat) == 1 else {"anyOf": flat}

    def _custom(self, cls: Any) -> dict[str, Any]:
        if isinstance(cls, type):
            if issubclass(cls, Choice):
                return self._any_of(self.schema(member) for member in cls.members)
            if issubclass(cls, OneOf):
                return _enumerated(value for value, _ in cls.options)
            if issubclass(cls, Recursive):
                return self._recursive(cls)
            if issubclass(cls, (Constructed, Twin)):
                return self.schema(cls.source)
            if is_path(cls):
                return {"type": "string", "format": "path"}
        raise NoJsonForm(cls)

    def _recursive(self, cls: type[Recursive]) -> dict[str, Any]:
        name = self._names.get(cls)
        if name is None:
            name = self._names[cls] = self._new_name(cls)
            self.defs[name] = {}
            self.defs[name].update(self.schema(cls.source))
        return {"$ref": f"#/$defs/{name}"}

    def _array(self, node: mi.CollectionType) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"}
        if items := self._of(node.item_type):
            schema["items"] = items
        if self.output and isinstance(node, mi.SetType | mi.FrozenSetType):
            schema["uniqueItems"] = True
        return schema | _lengths(node, "Items")

    def _mapping(self, node: mi.DictType) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object"}
        if values := self._of(node.value_type):
            schema["additionalProperties"] = values
        keys = self._of(node.key_type)
        # JSON keys are strings; a schema of numbers would refuse all of them.
        if keys.get("type") == "string" and len(keys) > 1:
            schema["propertyNames"] = keys
        return schema | _lengths(node, "Properties")

    def _named(self, node: Any) -> dict[str, Any]:
        name = self._names.get(node.cls)
        if name is None:
            name = self._names[node.cls] = self._new_name(node.cls)
            self.defs[name] = {}
            self.defs[name].update(self._record(node))
        return {"$ref": f"#/$defs/{name}"}

    def _new_name(self, cls: Any) -> str:
        if isinstance(cls, type):
            short, full = cls.__name__, f"{cls.__module__}.{cls.__qualname__}"
        else:
            short, full = _generic_name(cls), str(cls)
        for name in (short, full):
            cleaned = re.sub(r"[^\w.-]+", "_", name).strip("_")
            if cleaned not in self.defs:
                return cleaned
        return f"{cleaned}_{len(self.defs)}"

    def _record(self, node: Any) -> dict[str, Any]:
        described = _class_description(node.cls)
        tagged = getattr(node, "tag_field", None)
        tag = [(tagged, _enumerated([node.tag]), True)] if tagged else []
        fields = [
            *tag,
            *(
                (
                    field.encode_name,
                    choices_as_written(self._field(field), annotation),
                    field.required,
                )
                for field, annotation in fields_as_written(node.cls, node.fields)
            ),
        ]
        required = [name for name, _, needed in fields if needed]
        if isinstance(node, mi.NamedTupleType) or getattr(node, "array_like", False):
            shape = _exactly([schema for _, schema, _ in fields], len(required))
            if isinstance(node, mi.StructType) and not node.forbid_unknown_fields:
                del shape["maxItems"], shape["items"]
            return {"type": "array", **described, **shape}
        schema: dict[str, Any] = {"type": "object", **described}
        schema["properties"] = {name: field for name, field, _ in fields}
        if required:
            schema["required"] = required
        if getattr(node, "forbid_unknown_fields", False):
            schema["additionalProperties"] = False
        return schema

    def _field(self, field: mi.Field) -> dict[str, Any]:
        schema = self._of(field.type)
        default = field.default
        if field.default_factory in (list, dict, set, frozenset, tuple):
            default = field.default_factory()
        if default is not msgspec.NODEFAULT:
            schema = {**schema, **default_of(default)}
        return schema


def default_of(default: Any) -> dict[str, Any]:
    """Return `{"default": …}` if the default has a JSON form, otherwise an empty dict."""
    try:
        return {"default": json_value(default)}
    except (TypeError, ValueError, RecursionError):
        return {}


def json_value(value: Any) -> Any:
    """Convert a Python value to JSON types. Raises `TypeError` or `ValueError` if impossible."""
    seen = msgspec.json.decode(msgspec.json.encode(value, enc_hook=encode_hook))
    if seen is None and value is not None:
        raise ValueError(f"{value!r} has no JSON form")
    return seen


def _bounds(node: mi.IntType | mi.FloatType) -> dict[str, Any]:
    bounds = {
        "minimum": node.ge,
        "exclusiveMinimum": node.gt,
        "maximum": node.le,
        "exclusiveMaximum": node.lt,
        "multipleOf": node.multiple_of,
    }
    return {keyword: bound for keyword, bound in bounds.items() if bound is not None}


def _lengths(node: Any, what: str) -> dict[str, int]:
    lengths = {f"min{what}": node.min_length, f"max{what}": node.max_length}
    return {keyword: length for keyword, length in lengths.items() if length is not None}


def _base64_lengths(node: Any) -> dict[str, int]:
    """Return the length bounds of bytes, counted in base64 characters."""
    return {keyword: 4 * ((n + 2) // 3) for keyword, n in _lengths(node, "Length").items()}


def _exactly(items: list[dict[str, Any]], least: int) -> dict[str, Any]:
    shape: dict[str, Any] = {"prefixItems": items} if items else {}
    return {**shape, "items": False, "minItems": least, "maxItems": len(items)}


def _enumerated(values: Iterable[Any]) -> dict[str, Any]:
    values = list(values)
    kinds = {_JSON_TYPES.get(type(value)) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return {"type": kind, "enum": values} if kind else {"enum": values}


_JSON_TYPES = {str: "string", int: "integer", bool: "boolean", float: "number"}


def _generic_name(alias: Any) -> str:
    name: str = alias.__origin__.__name__
    parts = [getattr(arg, "__name__", str(arg)) for arg in alias.__args__]
    return "_".join([name, *parts])


def _class_description(cls: Any) -> dict[str, str]:
    cls = getattr(cls, "__origin__", cls)
    doc = cls.__dict__.get("__doc__") or ""
    # `dataclass` and `NamedTuple` generate a docstring, which is only the signature.
    if not doc or doc.startswith(f"{cls.__name__}("):
        return {}
    return {"description": inspect.cleandoc(doc)}
