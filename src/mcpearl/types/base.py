"""What all types of the specification share: base structs, reserved `_meta` keys, decode, encode.

Every type is a `Wire` struct: snake case in Python, camel case in JSON, and members that have their
default value are not sent. A type that the specification leaves open to further members is an
`Open` struct and keeps them. The types do not know protocol versions; `mcpearl.protocol.fields` says
which member exists in which version.
"""

from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
RELATED_TASK_KEY: Final = "io.modelcontextprotocol/related-task"
PROGRESS_TOKEN_KEY: Final = "progressToken"
# In an output schema: the value is the member `result`. FastMCP's clients look for it, as ours do.
WRAPPED_RESULT_KEY: Final = "x-fastmcp-wrap-result"

T = TypeVar("T")

RequestId = int | str
ProgressToken = int | str
Cursor = str
Role = Literal["user", "assistant"]
CacheScope = Literal["public", "private"]


class Wire(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Base of every type that is sent or received.

    Members can also be read under the specification's names, such as `inputSchema`.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Attributes of the class; a `__getattr__` would make reading every member slower.
        own = vars(cls)
        for name in own["__slots__"]:
            if name == "meta":
                setattr(cls, "_meta", own[name])  # noqa: B010 - the name is not this class's own
            elif "_" in name:
                setattr(cls, _camel(name), own[name])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object as dicts and lists, with the specification's names."""
        return to_builtins(self)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


class Open(Wire, kw_only=True, forbid_unknown_fields=True):
    """An object to which the sender may add members; unknown ones are kept in `extra`.

    Decode such a type with `decode` or `convert` of this module and write it with `encode` or
    `to_builtins`: they move the unknown members in and out of `extra`. Plain msgspec refuses them.
    """

    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="*")
    """Members that the specification does not name."""


class Result(Open, kw_only=True):
    """Base of every result of a request; on its own, the empty result."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    result_type: str | None = None
    """Whether the result is complete or asks for input; set by the server."""


EmptyResult = Result


class RequestParams(Wire, kw_only=True):
    """Params of every request."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class NotificationParams(Wire, kw_only=True):
    """Params of every notification."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class InputResponseRequestParams(RequestParams, kw_only=True):
    """A request that may be repeated with the input the server asked for.

    `input_responses` holds one answer per key of the server's `input_requests`; the type of an
    answer depends on the request under the same key.
    """

    input_responses: dict[str, dict[str, Any]] | None = None
    request_state: str | None = None


class TaskMetadata(Wire, kw_only=True):
    """Asks the receiver to run the request as a task, kept for `ttl` milliseconds."""

    ttl: int | None = None


class Icon(Wire, kw_only=True):
    """An icon: its URL, and the sizes and theme it is meant for.

    Args:
        src: The URL of the image; `data:` is one too.
        mime_type: Its media type.
        sizes: The sizes it is meant for, such as `48x48` or `any`.
        theme: Whether it is meant for a `light` or a `dark` background.
    """

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Wire, kw_only=True):
    """The name and version of a client or server program."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class Annotations(Wire, kw_only=True):
    """Hints about content: its audience, its priority (0 to 1), when it was last modified."""

    audience: list[Role] | None = None
    priority: int | float | None = None
    last_modified: str | None = None


# msgspec reads floats with large exponents a hundred times slower than `float` does, and short ones
# eight times faster. So long JSON is read with `float`, whose time is linear with a small factor.
_LONG = 4096


def read_float(text: str) -> float:
    """Read a number that is not an integer, as a decoder does: one out of range is refused.

    Args:
        text: The number as it stands in JSON.
    """
    value = float(text)
    if value - value != 0.0:
        raise msgspec.ValidationError("Number out of range")
    return value


_any_decoder = msgspec.json.Decoder()
_long_any_decoder = msgspec.json.Decoder(float_hook=read_float)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_long_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_encode = msgspec.json.Encoder().encode


def decode(type_: type[T], raw: bytes | bytearray | memoryview | msgspec.Raw) -> T:
    """Decode JSON as `type_`.

    Args:
        type_: A struct of this package, or any type that msgspec decodes.
        raw: The JSON.

    Raises:
        msgspec.DecodeError: It is not JSON.
        msgspec.ValidationError: It does not fit the type.
    """
    is_long = len(raw) > _LONG
    decoders = _long_decoders if is_long else _decoders
    decoder = decoders.get(type_)
    if decoder is None:
        hook = read_float if is_long else None
        decoder = decoders[type_] = msgspec.json.Decoder(type_, float_hook=hook)
    try:
        value: T = decoder.decode(raw)
    except msgspec.ValidationError:
        if not _is_open(type_):
            raise
        return convert(type_, decode_any(raw))
    if isinstance(value, Open) and value.extra:
        # The peer sent a member that is literally named "*".
        return convert(type_, decode_any(raw))
    return value


def decode_any(raw: bytes | bytearray | memoryview | msgspec.Raw) -> Any:
    """Read JSON that a peer wrote as dicts and lists.

    Args:
        raw: The JSON.
    """
    is_long = len(raw) > _LONG
    return (_long_any_decoder if is_long else _any_decoder).decode(raw)


def convert(type_: type[T], value: Any) -> T:
    """Convert decoded JSON (dicts and lists) to `type_`, as `decode` does from bytes.

    Args:
        type_: A struct of this package, or any type that msgspec decodes.
        value: The decoded JSON.
    """
    if not (_is_open(type_) and isinstance(value, dict)):
        return msgspec.convert(value, type_)
    known, required = _member_names(type_), _required_names(cast("Any", type_))
    # Some peers write null for a member that is not there.
    members = {k: v for k, v in value.items() if k in known and (v is not None or k in required)}
    struct = msgspec.convert(members, type_)
    struct.extra = {k: v for k, v in value.items() if k not in known}  # type: ignore[attr-defined]
    return struct


class _Openness(dict[type, bool]):
    """Whether types are open, looked up once for each: `isinstance` with a struct takes longer."""

    def __missing__(self, type_: type) -> bool:
        self[type_] = found = issubclass(type_, Open)
        return found


_openness = _Openness()


def encode(value: Any) -> bytes:
    """Encode `value` as JSON.

    Args:
        value: A struct of this package, or anything that msgspec encodes.
    """
    if _openness[type(value)] and value.extra:
        extra = _foreign_members(value)
        body = _encode(msgspec.structs.replace(value, extra={}))
        if not extra:
            return body
        return body[:-1] + (b"," if len(body) > 2 else b"") + _encode(extra)[1:]
    return _encode(value)


def to_builtins(value: Wire) -> dict[str, Any]:
    """Convert a struct to dicts and lists, as `encode` would write it.

    Args:
        value: The struct.
    """
    members: dict[str, Any]
    if isinstance(value, Open) and value.extra:
        members = msgspec.to_builtins(msgspec.structs.replace(value, extra={}))
        return members | _foreign_members(value)
    members = msgspec.to_builtins(value)
    return members


def _is_open(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, Open)


def _member_names(type_: Any) -> frozenset[str]:
    return frozenset(type_.__struct_encode_fields__) - {"*"}


@lru_cache
def _required_names(type_: Any) -> frozenset[str]:
    return frozenset(each.encode_name for each in msgspec.structs.fields(type_) if each.required)


def _foreign_members(value: Open) -> dict[str, Any]:
    # Declared members take precedence: a JSON object must not repeat a member.
    known = _member_names(type(value))
    return {k: v for k, v in value.extra.items() if k not in known}
