"""Rewrites Python annotations into annotations that msgspec can decode.

msgspec decodes most of Python's types. This module handles the rest: constraints of
`annotated-types`, descriptions as plain strings, abstract collections, and, through stand-ins (see
`stand_ins`), unions that msgspec refuses, enums of mixed values, containers that msgspec cannot
decode, records with constraints that it does not know, and aliases of themselves.
"""

from __future__ import annotations

import collections
import collections.abc
import enum
import re
import sys
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import msgspec.inspect

from mcpearl.schema.inside import inside, is_record
from mcpearl.schema.stand_ins import (
    Choice,
    Constructed,
    OneOf,
    Recursive,
    Twin,
    decode_hook,
)

__all__ = ["Adapter", "aliased", "described", "merged", "or_none", "union_of"]


class Adapter:
    """Rewrites annotations so that msgspec can decode them with `decode_hook`.

    Records with constraints that msgspec does not know are replaced by twins, the same one wherever
    a record is used.
    """

    __slots__ = ("_aliases", "_twins")

    def __init__(self) -> None:
        self._twins: dict[Any, Any] = {}
        self._aliases: dict[Any, Any] = {}  # None while an alias is being adapted

    def adapt(self, annotation: Any) -> Any:
        """Return the annotation that msgspec decodes in place of this one."""
        origin = get_origin(annotation)
        if origin is Annotated:
            base, *metadata = get_args(annotation)
            meta = merged(metadata)
            kind = self.adapt(base)
            return kind if meta is None else _constrained(kind, meta)
        if origin is Union or origin is types.UnionType:
            return _union(tuple(self.adapt(member) for member in get_args(annotation)))
        if origin is Literal:
            return _literal(annotation)
        if hasattr(origin or annotation, "__value__"):
            return self._alias(annotation)
        if _has_foreign_fields(annotation):
            return self._twin(annotation)
        if origin is not None:
            return self._generic(annotation, origin)
        if annotation is object:
            return Any
        if annotation is typing.LiteralString:
            return str
        if isinstance(annotation, type):
            return _class(annotation)
        return annotation

    def _alias(self, alias: Any) -> Any:
        """Adapt what a `type` statement names. One that names itself is decoded step by step."""
        if alias not in self._aliases:
            self._aliases[alias] = None
            kind = self.adapt(aliased(alias))
            step = self._aliases[alias]
            self._aliases[alias] = kind
            if step is not None:
                step.source = kind
            return kind
        if self._aliases[alias] is None:
            self._aliases[alias] = type(str(alias), (Recursive,), {})
        return self._aliases[alias]

    def _twin(self, annotation: Any) -> Any:
        if annotation not in self._twins:
            from mcpearl.schema.records import record_of
            from mcpearl.schema.twins import twin_of

            record = record_of(annotation)
            assert record is not None
            twin = type(record.name, (Twin,), {"build": staticmethod(record.build)})
            self._twins[annotation] = twin  # first: the record may contain itself
            twin.source = twin_of(record, self.adapt)  # type: ignore[attr-defined]
        return self._twins[annotation]

    def _generic(self, annotation: Any, origin: Any) -> Any:
        args = get_args(annotation)
        adapted = tuple(self.adapt(arg) if arg is not ... else arg for arg in args)
        if origin in _ABSTRACT:
            return _ABSTRACT[origin][adapted]
        if origin is collections.Counter:
            return _constructed(origin, types.GenericAlias(dict, (*adapted, int)))
        if origin is collections.defaultdict:
            source = types.GenericAlias(dict, adapted)
            missing = get_origin(args[1]) or args[1]
            return _constructed(lambda value: collections.defaultdict(missing, value), source)
        if origin in _CONSTRUCTED:
            return _constructed(origin, _CONSTRUCTED[origin][adapted])
        if adapted != args and origin in (list, dict, set, frozenset, tuple):
            return origin[adapted]
        return annotation


def aliased(alias: Any) -> Any:
    """Return what a `type` statement names, with the arguments of a generic one filled in."""
    origin = get_origin(alias)
    if origin is None:
        return _value_of(alias)
    from mcpearl.schema.records import substituted

    return substituted(
        _value_of(origin), dict(zip(origin.__type_params__, get_args(alias), strict=False))
    )


def _value_of(alias: Any) -> Any:
    """Return what an alias names, with the names in text resolved in the module of the alias."""
    holder = types.SimpleNamespace(__annotations__={"it": alias.__value__})
    module = sys.modules.get(getattr(alias, "__module__", None) or "")
    own = {alias.__name__: alias, **{each.__name__: each for each in alias.__type_params__}}
    try:
        hints = typing.get_type_hints(holder, vars(module) if module else {}, own, True)
    except NameError as error:
        raise TypeError(
            f"the alias `{alias.__name__}` cannot be resolved: {error}; define in its module, not "
            "in a function, what it names in text"
        ) from error
    return hints["it"]


def _has_foreign_fields(annotation: Any) -> bool:
    """Return whether a record contains metadata that msgspec would ignore."""
    cls = get_origin(annotation) or annotation
    if not isinstance(cls, type) or not is_record(cls):
        return False
    from mcpearl.schema.records import metadata_inside

    return any(map(_is_foreign, metadata_inside(cls)))


def _is_foreign(metadata: Any) -> bool:
    return not isinstance(metadata, msgspec.Meta) and bool(_meta_of(metadata))


# --- constraints -------------------------------------------------------------------------------


def merged(metadata: list[Any]) -> msgspec.Meta | None:
    """Combine the metadata of `Annotated` in one `Meta`. Later entries take precedence."""
    metas = [meta for each in metadata for meta in _meta_of(each)]
    if not metas:
        return None
    said = {key: value for meta in metas for key, value in described(meta).items()}
    if pattern := said.get("pattern"):
        said["pattern"] = _as_json_schema_matches(pattern)
        # Publish the pattern as the author wrote it.
        said["extra_json_schema"] = {"pattern": pattern, **said.get("extra_json_schema", {})}
    return msgspec.Meta(**said)


def _as_json_schema_matches(pattern: str) -> str:
    r"""Return a pattern that matches in Python what `pattern` matches in JSON Schema.

    In JSON Schema `$` matches only at the very end, and `\d` and `\w` are ASCII.
    """
    if pattern.startswith("(?"):
        return pattern
    ending = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", _end, pattern)
    return f"(?a:{ending})"


def _end(match: re.Match[str]) -> str:
    return r"\Z" if match[0] == "$" else match[0]


def described(meta: msgspec.Meta) -> dict[str, Any]:
    """Return the settings of a `Meta` that are not None."""
    return {name: value for name in _META if (value := getattr(meta, name)) is not None}


_CONSTRAINTS = {"gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz"}
_META = (*_CONSTRAINTS, "title", "description", "examples", "extra_json_schema", "extra")


def _meta_of(metadata: Any) -> list[msgspec.Meta]:
    """Return one entry of `Annotated` as `Meta`s; an empty list if it is not known here."""
    if isinstance(metadata, msgspec.Meta):
        return [metadata]
    if isinstance(metadata, str):
        return [msgspec.Meta(description=metadata)]
    if isinstance(documentation := getattr(metadata, "documentation", None), str):
        return [msgspec.Meta(description=documentation)]
    # Recognised by module name, so that the library does not have to be installed.
    if type(metadata).__module__ != "annotated_types":
        return []
    return _constraint(metadata)


def _constraint(constraint: Any) -> list[msgspec.Meta]:
    match type(constraint).__name__:
        case "Gt":
            return [msgspec.Meta(gt=constraint.gt)]
        case "Ge":
            return [msgspec.Meta(ge=constraint.ge)]
        case "Lt":
            return [msgspec.Meta(lt=constraint.lt)]
        case "Le":
            return [msgspec.Meta(le=constraint.le)]
        case "MultipleOf":
            return [msgspec.Meta(multiple_of=constraint.multiple_of)]
        case "MinLen":
            return [msgspec.Meta(min_length=constraint.min_length)]
        case "MaxLen":
            return [msgspec.Meta(max_length=constraint.max_length)]
        case "Interval" | "Len":
            return [meta for part in constraint for meta in _constraint(part)]
        case "Timezone" if constraint.tz is None or constraint.tz is ...:
            return [msgspec.Meta(tz=constraint.tz is ...)]
        case "Unit":
            return []
        case unknown:
            raise TypeError(f"the constraint `{unknown}` has no JSON form")


def _constrained(kind: Any, meta: msgspec.Meta) -> Any:
    """Apply constraints where msgspec accepts them: to the matching members of a union."""
    if get_origin(kind) is not Union:
        return Annotated[kind, meta]
    members = list(get_args(kind))
    rest = described(meta)
    for name in _CONSTRAINTS & rest.keys():
        constraint = msgspec.Meta(**{name: rest[name]})
        takers = [at for at, each in enumerate(members) if _decodes(Annotated[each, constraint])]
        for at in takers:
            members[at] = Annotated[members[at], constraint]
        if takers:
            del rest[name]
    union = _union(tuple(members))
    return Annotated[union, msgspec.Meta(**rest)] if rest else union


# --- types -------------------------------------------------------------------------------------

_ABSTRACT: dict[Any, Any] = {
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}

_CONSTRUCTED: dict[Any, Any] = {
    collections.deque: list,
    collections.OrderedDict: dict,
    collections.Counter: dict,
}


def _class(annotation: type) -> Any:
    if annotation in _ABSTRACT:
        return _ABSTRACT[annotation]
    if annotation is collections.Counter:
        return _constructed(annotation, dict[str, int])
    if annotation in _CONSTRUCTED:
        return _constructed(annotation, _CONSTRUCTED[annotation])
    if issubclass(annotation, enum.Enum) and not _decodes(annotation):
        return _one_of(annotation.__name__, [(member.value, member) for member in annotation])
    _check_record(annotation)
    return annotation


def _literal(annotation: Any) -> Any:
    if _decodes(annotation):
        return annotation
    options = [
        (value.value if isinstance(value, enum.Enum) else value, value)
        for value in get_args(annotation)
    ]
    return _one_of("Literal", options)


def _union(members: tuple[Any, ...]) -> Any:
    union = union_of(members)
    members = get_args(union) or (union,)
    if not _crashes(members) and not _overlap(members) and _decodes(union):
        return union
    named = tuple(member for member in members if member is not type(None))
    choice = type("Choice", (Choice,), {"members": named})
    return choice if len(named) == len(members) else choice | None


def _overlap(members: tuple[Any, ...]) -> bool:
    """Return whether a value may fit several members although msgspec would try only one."""
    nodes = [_bare(msgspec.inspect.type_info(member)) for member in members]
    # Structs are distinguished by their tags.
    kinds = [type(node) for node in nodes if not isinstance(node, msgspec.inspect.StructType)]
    if len(kinds) != len(set(kinds)):
        return True
    numbers = [node for node in nodes if isinstance(node, _NUMBERS)]
    return len(numbers) > 1 and any(map(_narrowed, numbers))


_NUMBERS = (
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.DecimalType,
    msgspec.inspect.LiteralType,
    msgspec.inspect.EnumType,
)


def _narrowed(node: msgspec.inspect.Type) -> bool:
    if isinstance(node, msgspec.inspect.LiteralType | msgspec.inspect.EnumType):
        return True
    return any(getattr(node, name, None) is not None for name in _CONSTRAINTS)


def _bare(node: msgspec.inspect.Type) -> msgspec.inspect.Type:
    return _bare(node.type) if isinstance(node, msgspec.inspect.Metadata) else node


def _crashes(members: tuple[Any, ...]) -> bool:
    """Return whether a decoder of this union would corrupt memory.

    msgspec (seen in 0.22) frees parts of such a decoder as the wrong type. Affected are a pattern
    beside a container, and any constraint beside a tuple of fixed length.
    """
    said = {
        name
        for member in members
        for meta in getattr(member, "__metadata__", ())
        if isinstance(meta, msgspec.Meta)
        for name in _CONSTRAINTS & described(meta).keys()
    }
    bare = [get_args(each)[0] if get_origin(each) is Annotated else each for each in members]
    containers = [each for each in bare if (get_origin(each) or each) in _CONTAINERS]
    fixed = [each for each in containers if get_origin(each) is tuple and ... not in get_args(each)]
    return bool((containers and "pattern" in said) or (fixed and said))


_CONTAINERS = {list, tuple, set, frozenset, dict, *_ABSTRACT}


def _check_record(record: type) -> None:
    """Refuse a record with a union that would crash msgspec, which decodes records itself."""
    for part in inside(record):
        if get_origin(part) in (Union, types.UnionType) and _crashes(get_args(part)):
            raise TypeError(
                f"`{part}` combines a constraint with a container; put the constraint on a "
                "parameter, or use two fields"
            )


def union_of(members: tuple[Any, ...]) -> Any:
    """Return the `Union` of members that are only known at run time."""
    return Union.__getitem__(members)


def or_none(annotation: Any) -> Any:
    """Return an annotation that accepts None as well; the same one if it does so already."""
    inner = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(inner) in (Union, types.UnionType) and type(None) in get_args(inner):
        return annotation
    return union_of((annotation, None))


def _one_of(name: str, options: list[tuple[Any, Any]]) -> Any:
    if any(type(value) not in (str, int, float, bool, type(None)) for value, _ in options):
        raise TypeError(f"`{name}` has values with no JSON form")
    return type(name, (OneOf,), {"options": tuple(options)})


def _constructed(construct: Any, source: Any) -> Any:
    return type("Constructed", (Constructed,), {"source": source, "construct": construct})


def _decodes(annotation: Any) -> bool:
    try:
        msgspec.json.Decoder(annotation, dec_hook=decode_hook)
    except TypeError:
        return False
    return True
