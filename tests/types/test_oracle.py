"""Compares the wire types with those of `mcp-types`, an independent reading of the same schemas.

Both directions, for every method, notification and result: what we write, the oracle must accept
and give back unchanged; what the oracle writes, we must read and write again without loss. Values
are generated from the annotations of the types themselves, ours and theirs.
"""

import functools
import json
import types
import typing
from typing import Any, Literal, get_args, get_origin

import annotated_types
import mcp_types._v2025_11_25 as v2025
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_types import methods as oracle
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypeAliasType

from mcpearl import types as t
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.versions import VERSIONS
from mcpearl.types.methods import NOTIFICATIONS, REQUESTS

MODERN = "2026-07-28"
SETTINGS = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

Strategy = st.SearchStrategy[Any]

TEXT = st.text(max_size=6)
KEY = st.text("abcxyz", min_size=1, max_size=3).map("x/".__add__)
INTEGER = st.integers(0, 2**53)
NUMBER = INTEGER | st.floats(allow_nan=False, allow_infinity=False)
FRACTION = st.floats(0, 1) | st.sampled_from([0, 1])
SCALAR = st.none() | st.booleans() | NUMBER | TEXT
JSON = SCALAR | st.lists(SCALAR, max_size=2) | st.dictionaries(KEY, SCALAR, max_size=2)
OBJECT = st.dictionaries(KEY, JSON, max_size=2)
OBJECT_SCHEMA = OBJECT.map(lambda schema: {"type": "object"} | schema)


def as_json(value: Any) -> Any:
    return json.loads(t.encode(value))


def canonical(value: Any) -> Any:
    """A form to compare JSON by: as Python does, but true is not 1."""
    if isinstance(value, dict):
        return {k: canonical(v) for k, v in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return repr(value) if isinstance(value, bool) else value


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def without_defaults(type_: Any, value: Any) -> Any:
    """Leave out what a result of a tool means without saying it: that there was no error."""
    defaults = {"isError": False, "structuredContent": None} if type_ is t.CallToolResult else {}
    kept = {k: v for k, v in value.items() if k not in defaults or v is not defaults[k]}
    return {k: without_null_results(v) for k, v in kept.items()}


def without_null_results(value: Any) -> Any:
    """Leave out null where a conversation has the result of a tool: it means that there is none."""
    if isinstance(value, list):
        return [without_null_results(item) for item in value]
    if not isinstance(value, dict):
        return value
    of_a_tool = value.get("type") == "tool_result"
    return {
        k: without_null_results(v)
        for k, v in value.items()
        if not (of_a_tool and k == "structuredContent" and v is None)
    }


# --- values of our types ---

REQUIRED_BY_MODERN = ("result_type", "ttl_ms", "cache_scope", "request_id")


def struct_of(type_: type[msgspec.Struct], version: str, **fixed: Strategy) -> Strategy:
    """Any value of a struct, and often one with all its members, as `version` requires them."""
    some, every = dict(fixed), dict(fixed)
    for field in msgspec.structs.fields(type_):
        if field.name not in fixed and field.name != "extra":
            some[field.name] = member_of(type_, field, version, in_full=False)
            every[field.name] = member_of(type_, field, version, in_full=True)
    return st.builds(type_, **some) | st.builds(type_, **every)


def member_of(type_: type[msgspec.Struct], field: Any, version: str, *, in_full: bool) -> Strategy:
    special = special_member(type_, field.name, version)
    if special is not None:
        return special
    required_now = version == MODERN and field.name in REQUIRED_BY_MODERN
    return value_of(not_none(field.type) if required_now or in_full else field.type, version)


def not_none(annotation: Any) -> Any:
    arguments = tuple(argument for argument in get_args(annotation) if argument is not type(None))
    is_union = get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.Union[arguments] if is_union else annotation  # noqa: UP007


@functools.cache
def value_of(annotation: Any, version: str) -> Strategy:
    special = special_type(annotation, version)
    if special is not None:
        return special
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return struct_of(annotation, version)
    return plain_value(annotation, lambda nested: value_of(nested, version))


def plain_value(annotation: Any, nested: Any) -> Strategy:
    """Values of what is neither a struct nor a model."""
    plain: dict[Any, Strategy] = {
        str: TEXT,
        int: INTEGER,
        float: NUMBER,
        bool: st.booleans(),
        type(None): st.none(),
        Any: JSON,
        msgspec.Raw: OBJECT.map(lambda value: msgspec.Raw(json.dumps(value).encode())),
        msgspec.UnsetType: st.just(msgspec.UNSET),
    }
    if annotation in plain:
        return plain[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(nested, arguments))
    if origin is list:
        return st.lists(nested(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(KEY, nested(arguments[1]), max_size=2)
    raise TypeError(f"no strategy for {annotation!r}")


def special_type(annotation: Any, version: str) -> Strategy | None:
    if annotation is t.ResourceContents:
        return struct_of(t.TextResourceContents, version, blob=st.none()) | struct_of(
            t.BlobResourceContents, version, text=st.none()
        )
    if annotation is t.ElicitRequestParams:
        form = struct_of(
            t.ElicitRequestParams,
            version,
            mode=st.sampled_from([None, "form"]),
            requested_schema=value_of(t.RequestedSchema, version),
            url=st.none(),
            elicitation_id=st.none(),
        )
        url = struct_of(
            t.ElicitRequestParams,
            version,
            mode=st.just("url"),
            requested_schema=st.none(),
            url=TEXT,
            elicitation_id=TEXT,
        )
        return form if version < "2025-11-25" else form | url
    return None


def special_member(type_: type[msgspec.Struct], name: str, version: str) -> Strategy | None:
    """Members whose annotation says less than the specification does."""
    match name:
        case "meta":
            return meta_of(type_, version)
        case "priority" | "cost_priority" | "speed_priority" | "intelligence_priority":
            return st.none() | FRACTION
        case "input_schema":
            return OBJECT_SCHEMA
        case "output_schema":
            return st.none() | OBJECT | OBJECT_SCHEMA
        case "structured_content":
            return JSON
        case "properties" if type_ is t.RequestedSchema:
            return st.dictionaries(KEY, value_of(t.PrimitiveSchemaDefinition, version), max_size=2)
        case "tasks" if type_ in TASK_REQUESTS_OF_THE_OTHER:
            return tasks_of(type_)
        case "input_responses" if issubclass(type_, t.InputResponseRequestParams):
            return st.none() | st.dictionaries(KEY, input_response(), max_size=2)
        case "task_ids":
            # Of the tasks extension, which the oracle does not have.
            return st.none()
    return None


def meta_of(type_: type[msgspec.Struct], version: str) -> Strategy:
    asked_by_server = type_ in (t.CreateMessageRequestParams, t.ElicitRequestParams)
    if version == MODERN and issubclass(type_, t.RequestParams) and not asked_by_server:
        return request_meta()
    if type_ is t.ElicitationCompleteNotificationParams:
        # The schema names no `_meta` here, though a notification of a task has to have one.
        return st.none()
    if version == MODERN and type_ is t.SubscriptionsListenResult:
        return st.fixed_dictionaries({t.SUBSCRIPTION_ID_KEY: INTEGER | TEXT})
    return st.none() | OBJECT


def request_meta() -> Strategy:
    capabilities = value_of(t.ClientCapabilities, MODERN).map(in_version(MODERN)).map(as_json)
    return st.builds(
        lambda reserved, own: reserved | own,
        st.fixed_dictionaries(
            {t.PROTOCOL_VERSION_KEY: st.just(MODERN), t.CLIENT_CAPABILITIES_KEY: capabilities},
            optional={
                t.CLIENT_INFO_KEY: value_of(t.Implementation, MODERN).map(as_json),
                t.LOG_LEVEL_KEY: value_of(t.LoggingLevel, MODERN),
                t.PROGRESS_TOKEN_KEY: INTEGER | TEXT,
            },
        ),
        OBJECT,
    )


def input_response() -> Strategy:
    answers = value_of(t.CreateMessageResult | t.ListRootsResult | t.ElicitResult, MODERN)
    return answers.map(in_version(MODERN)).map(as_json)


# Which half of the task capability belongs to the other side.
TASK_REQUESTS_OF_THE_OTHER = {
    t.ClientCapabilities: ("tools",),
    t.ServerCapabilities: ("sampling", "elicitation"),
}


def tasks_of(type_: type) -> Strategy:
    theirs = dict.fromkeys(TASK_REQUESTS_OF_THE_OTHER[type_], st.none())
    requests = struct_of(t.TaskRequestsCapability, MODERN, **theirs)
    return st.none() | struct_of(t.TasksCapability, MODERN, requests=st.none() | requests)


def in_version(version: str) -> Any:
    return lambda value: narrow(value, version)


# --- values of the oracle's models ---


@functools.cache
def model_value(annotation: Any) -> Strategy:
    if isinstance(annotation, TypeAliasType):
        return JSON
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return model_members(annotation)
    if get_origin(annotation) is typing.Annotated:
        inner, *metadata = get_args(annotation)
        return constrained(model_value(inner), metadata)
    return plain_value(annotation, model_value)


def model_members(model: type[BaseModel]) -> Strategy:
    required, optional = {}, {}
    for name, field in model.model_fields.items():
        # What is optional is absent or has a value; that null means absent is checked on its own.
        annotation = field.annotation if field.is_required() else not_none(field.annotation)
        strategy = constrained(model_value(annotation), field.metadata)
        if field.is_required():
            required[field.alias or name] = strategy
        else:
            optional[field.alias or name] = strategy
    members = st.fixed_dictionaries(required, optional=optional) | st.fixed_dictionaries(
        required | optional
    )
    if model.model_config.get("extra") != "allow":
        return members
    return st.builds(lambda own, known: own | known, OBJECT, members)


def constrained(strategy: Strategy, metadata: list[Any]) -> Strategy:
    for constraint in metadata:
        if isinstance(constraint, annotated_types.Le):
            return FRACTION
    return strategy


# --- the comparisons ---


def cases(*tables: Any) -> list[Any]:
    return [
        pytest.param(method, version, model, id=f"{method} {version}")
        for table in tables
        for (method, version), model in table.items()
    ]


def once_per_model(*tables: Any) -> list[Any]:
    models = {
        (method, model): f"{method} {model.__module__} {model.__name__}"
        for table in tables
        for (method, _), union in table.items()
        for model in get_args(union) or (union,)
    }
    return [pytest.param(*case, id=name) for case, name in models.items()]


REQUEST_TABLES = (oracle.CLIENT_REQUESTS, oracle.SERVER_REQUESTS)
NOTIFICATION_TABLES = (oracle.CLIENT_NOTIFICATIONS, oracle.SERVER_NOTIFICATIONS)
RESULT_TABLES = (oracle.SERVER_RESULTS, oracle.CLIENT_RESULTS)


adapter_of = functools.cache(TypeAdapter)


def oracle_reads(model: Any, message: dict[str, Any]) -> Any:
    adapter = adapter_of(model)
    parsed = adapter.validate_python(message, by_name=False)
    return adapter.dump_python(parsed, by_alias=True, mode="json", exclude_unset=True)


def envelope(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def as_known(message: Any, version: str) -> Any:
    """Return a message as the oracle keeps it: it drops extensions in a legacy handshake."""
    if version >= "2026-07-28" or not isinstance(message, dict):
        return message
    known = {key: as_known(value, version) for key, value in message.items()}
    capabilities = known.get("capabilities")
    if isinstance(capabilities, dict):
        known["capabilities"] = {k: v for k, v in capabilities.items() if k != "extensions"}
    return known


@pytest.mark.parametrize(("method", "version", "model"), cases(*REQUEST_TABLES))
def test_oracle_accepts_our_requests(method: str, version: str, model: Any) -> None:
    @SETTINGS
    @given(value_of(REQUESTS[method].params, version))
    def check(params: Any) -> None:
        message = envelope(method, as_json(narrow(params, version)))
        assert canonical(oracle_reads(model, message)) == canonical(as_known(message, version))

    check()


@pytest.mark.parametrize(("method", "version", "model"), cases(*NOTIFICATION_TABLES))
def test_oracle_accepts_our_notifications(method: str, version: str, model: Any) -> None:
    @SETTINGS
    @given(value_of(NOTIFICATIONS[method].params, version))
    def check(params: Any) -> None:
        message = envelope(method, as_json(narrow(params, version)))
        del message["id"]
        assert canonical(oracle_reads(model, message)) == canonical(message)

    check()


@pytest.mark.parametrize(("method", "version", "model"), cases(*RESULT_TABLES))
def test_oracle_accepts_our_results(method: str, version: str, model: Any) -> None:
    result_type = REQUESTS[method].result
    assert result_type is not None

    @SETTINGS
    @given(value_of(result_type, version))
    def check(result: Any) -> None:
        message = as_json(narrow(result, version))
        assert canonical(oracle_reads(model, message)) == canonical(as_known(message, version))

    check()


@pytest.mark.parametrize("method", [m.name for m in REQUESTS.values() if m.input_required])
def test_oracle_accepts_our_questions(method: str) -> None:
    model = oracle.SERVER_RESULTS[method, MODERN]

    @SETTINGS
    @given(struct_of(t.InputRequiredResult, MODERN, result_type=st.just("input_required")))
    def check(result: Any) -> None:
        message = as_json(narrow(result, MODERN))
        assert canonical(oracle_reads(model, message)) == canonical(message)

    check()


def read_and_write_again(type_: Any, message: Any) -> Any:
    return as_json(t.decode(type_, json.dumps(message).encode()))


@pytest.mark.parametrize(("method", "model"), once_per_model(*REQUEST_TABLES, *NOTIFICATION_TABLES))
def test_we_read_their_params_without_loss(method: str, model: type[BaseModel]) -> None:
    row = REQUESTS.get(method) or NOTIFICATIONS[method]

    @SETTINGS
    @given(model_value(model))
    def check(message: Any) -> None:
        check_reading(row.params, model, message, lambda dumped: dumped.get("params") or {})

    check()


@pytest.mark.parametrize(("method", "model"), once_per_model(*RESULT_TABLES))
def test_we_read_their_results_without_loss(method: str, model: Any) -> None:
    asks = model.__name__ == "InputRequiredResult"
    result_type = t.InputRequiredResult if asks else REQUESTS[method].result

    @SETTINGS
    @given(model_value(model))
    def check(message: Any) -> None:
        check_reading(result_type, model, message, lambda dumped: dumped)

    check()


TASKS = [
    (t.Task, v2025.Task),
    (t.CreateTaskResult, v2025.CreateTaskResult),
    (t.GetTaskResult, v2025.GetTaskResult),
    (t.CancelTaskResult, v2025.CancelTaskResult),
    (t.ListTasksResult, v2025.ListTasksResult),
    (t.GetTaskPayloadResult, v2025.GetTaskPayloadResult),
    (t.TaskStatusNotificationParams, v2025.TaskStatusNotificationParams),
    (t.RelatedTaskMetadata, v2025.RelatedTaskMetadata),
]


@pytest.mark.parametrize(("type_", "model"), TASKS)
def test_we_read_their_tasks_without_loss(type_: Any, model: Any) -> None:
    @SETTINGS
    @given(model_value(model))
    def check(message: Any) -> None:
        check_reading(type_, model, message, lambda dumped: dumped)

    check()


@pytest.mark.parametrize(("type_", "model"), TASKS)
def test_oracle_accepts_our_tasks(type_: Any, model: Any) -> None:
    @SETTINGS
    @given(value_of(type_, "2025-11-25"))
    def check(value: Any) -> None:
        message = as_json(narrow(value, "2025-11-25"))
        assert canonical(oracle_reads(model, message)) == canonical(message)

    check()


def check_reading(type_: Any, model: Any, message: Any, part: Any) -> None:
    """Read what the oracle writes: with the unset members left out, and with them as nulls."""
    adapter = adapter_of(model)
    parsed = adapter.validate_python(message, by_name=False)
    written = part(adapter.dump_python(parsed, by_alias=True, mode="json", exclude_unset=True))
    again = read_and_write_again(type_, written)
    expected = without_defaults(type_, written)
    assert canonical(without_null_results(again)) == canonical(expected)
    in_full = part(adapter.dump_python(parsed, by_alias=True, mode="json"))
    again = read_and_write_again(type_, in_full)
    whole = without_defaults(type_, in_full)
    assert canonical(without_nulls(again)) == canonical(without_nulls(whole))


def test_oracle_knows_the_same_versions() -> None:
    assert {version for _, version in oracle.CLIENT_REQUESTS} == set(VERSIONS)
