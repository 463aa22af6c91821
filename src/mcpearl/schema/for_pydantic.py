"""Rewrites Python annotations into annotations that pydantic honours.

pydantic does not know `msgspec.Meta` and descriptions as plain strings, nor structs. They become its
own `Field`, at every depth: a record that contains them is validated through a twin (see
`records`). A pydantic model is never rewritten; it is refused if it contains something that pydantic
would ignore.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pydantic
import typing_extensions
from msgspec import inspect as mi
from pydantic_core import core_schema

from mcpearl.schema.adapt import described, union_of
from mcpearl.schema.inside import is_record
from mcpearl.schema.records import Record, metadata_inside, record_of
from mcpearl.schema.twins import dict_or_tuple

__all__ = ["PydanticAdapter"]

# Before Python 3.12 pydantic takes only the TypedDict of typing_extensions.
_typed_dict: Any = typing_extensions.TypedDict
_TWIN_ALL_DICTS = sys.version_info < (3, 12)


class PydanticAdapter:
    """Rewrites the annotations of one signature; a record gets the same twin everywhere."""

    __slots__ = ("_output", "_twins")

    def __init__(self, *, output: bool = False) -> None:
        self._output = output
        self._twins: dict[Any, _PydanticTwin] = {}

    def adapt(self, annotation: Any) -> Any:
        """Return the annotation to pass to pydantic in place of this one."""
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            base, *metadata = args
            said = [one for each in metadata for one in _as_fields(each)]
            return Annotated[(self.adapt(base), *said)] if said else self.adapt(base)
        if origin is Union or origin is types.UnionType:
            return union_of(tuple(self.adapt(arg) for arg in args))
        if _needs_twin(annotation, output=self._output):
            return self._by_twin(annotation)
        if origin in (list, dict, set, frozenset, tuple):
            return origin[tuple(arg if arg is ... else self.adapt(arg) for arg in args)]
        if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
            _check_model(annotation)
        return annotation

    def _by_twin(self, annotation: Any) -> Any:
        twin = self._twins.get(annotation)
        if twin is None:
            record = record_of(annotation)
            assert record is not None
            twin = self._twins[annotation] = _PydanticTwin(record)  # first: it may contain itself
            twin.cls = _twin_class(record, self)
        return Annotated[annotation, twin]


def _needs_twin(annotation: Any, *, output: bool) -> bool:
    cls = get_origin(annotation) or annotation
    if not isinstance(cls, type) or not is_record(cls) or hasattr(cls, "__pydantic_core_schema__"):
        return False
    if issubclass(cls, msgspec.Struct) or (typing.is_typeddict(cls) and _TWIN_ALL_DICTS):
        return True
    if output and dataclasses.is_dataclass(cls):
        return True  # pydantic trusts its instances, and nothing has checked them
    return any(map(_is_foreign, metadata_inside(cls)))


def _is_foreign(metadata: Any) -> bool:
    return isinstance(metadata, str | msgspec.Meta) or _documentation(metadata) is not None


def _documentation(metadata: Any) -> str | None:
    text = getattr(metadata, "documentation", None)
    return text if isinstance(text, str) else None


def _as_fields(metadata: Any) -> list[Any]:
    """Return one entry of `Annotated` in pydantic's terms."""
    if isinstance(metadata, str):
        return [pydantic.Field(description=metadata)]
    if (text := _documentation(metadata)) is not None:
        return [pydantic.Field(description=text)]
    if not isinstance(metadata, msgspec.Meta):
        return [metadata]
    given = dict(described(metadata))
    extra = given.pop("extra_json_schema", None)
    given.pop("extra", None)
    tz = given.pop("tz", None)
    said: list[Any] = [] if tz is None else [_zoned(tz)]
    return [pydantic.Field(json_schema_extra=extra, **given), *said]


def _zoned(wanted: bool) -> Any:
    def check(moment: Any) -> Any:
        if (moment.tzinfo is not None) is not wanted:
            raise ValueError(f"expected a time with{'' if wanted else 'out'} a zone")
        return moment

    return pydantic.AfterValidator(check)


def _check_model(model: type[pydantic.BaseModel]) -> None:
    """Refuse a model with constraints that pydantic does not see."""
    for name, field in model.model_fields.items():
        ignored = [each for each in field.metadata if isinstance(each, msgspec.Meta)]
        ignored += [
            each for each in metadata_inside(field.annotation) if isinstance(each, msgspec.Meta)
        ]
        if ignored:
            raise TypeError(
                f"pydantic does not apply `{ignored[0]}` of `{model.__name__}.{name}`; write it as "
                "`pydantic.Field(…)`"
            )


class _PydanticTwin:
    """Tells pydantic to validate and serialize a record as its twin."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.cls: Any = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        inner = handler.generate_schema(self.cls)
        if isinstance(self._record.kind, mi.TypedDictType):
            return inner
        return core_schema.no_info_before_validator_function(
            self._taken_apart,
            core_schema.no_info_after_validator_function(self._built, inner),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._as_twin, return_schema=inner
            ),
        )

    def _taken_apart(self, value: Any) -> Any:
        """Return the fields of an object, so that they are checked; other input as it came."""
        if not isinstance(value, self._record.cls):
            return value
        if isinstance(self._record.kind, mi.NamedTupleType):
            return tuple(value)
        return {each.encoded: getattr(value, each.name) for each in self._record.fields}

    def _built(self, twin: Any) -> Any:
        return self._record.build(
            {one.name: getattr(twin, one.name) for one in self._record.fields}
        )

    def _as_twin(self, value: Any) -> Any:
        return self.cls(**{one.name: getattr(value, one.name) for one in self._record.fields})


def _twin_class(record: Record, adapter: PydanticAdapter) -> Any:
    hints = {each.name: adapter.adapt(each.hint) for each in record.fields}
    return dict_or_tuple(record, hints, _typed_dict) or _dataclass(record, hints)


def _dataclass(record: Record, hints: dict[str, Any]) -> Any:
    fields: list[Any] = []
    for each in record.fields:
        hint = hints[each.name]
        if each.encoded != each.name:
            hint = Annotated[hint, pydantic.Field(validation_alias=each.encoded)]
            hint = Annotated[hint, pydantic.Field(serialization_alias=each.encoded)]
        fields.append((each.name, hint, dataclasses.field(**each.defaults())))
    doc = record.cls.__doc__
    own = None if doc is None or doc.startswith(f"{record.name}(") else doc
    twin = dataclasses.make_dataclass(
        record.name, fields, kw_only=True, namespace={"__doc__": own or ""}
    )
    twin.__module__ = record.cls.__module__
    return twin
