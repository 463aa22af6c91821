"""Checks options at registration, so that a mistake shows there and not at a client.

Messages name what was registered, what is wrong with it, and what to write instead.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from mcpearl.protocol.versions import VERSIONS
from mcpearl.runtime.arguments import did_you_mean, refuse_text
from mcpearl.types.base import Icon, Wire

W = TypeVar("W", bound=Wire)
_URI = r"[A-Za-z][A-Za-z0-9+.\-]*:[^\s\x00-\x1f\x7f<>\"]+"
_EXPRESSION = r"\{[^{}]*\}"


def check_options(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that `what`, such as `@app.tool`, does not have."""
    known = sorted(known)
    for name in given:
        if name not in known:
            guess = did_you_mean(name, known)
            raise TypeError(
                f"`{what}` has no option `{name}`{guess or '.'} The options are {_listed(known)}"
            )


def check_texts(**texts: Any) -> None:
    """Refuse options that must be text and are not."""
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"`{name}` must be text, as in `{name}={str(value)!r}`, not {value!r}")


def check_versions(versions: Any) -> None:
    """Refuse protocol versions that this package does not speak."""
    refuse_text("versions", versions)
    for version in versions:
        if version not in VERSIONS:
            raise ValueError(
                f"`{version}` is not a protocol version; choose one of {_listed(VERSIONS)}"
            )


def check_lifespan(lifespan: Any) -> None:
    """Refuse a lifespan that is a bare generator, which only fails when the server starts."""
    if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        raise TypeError(
            f"`lifespan` must return an async context manager, and `{lifespan.__name__}` is a "
            "generator; put `@contextlib.asynccontextmanager` above it"
        )


def record_of(kind: type[W], given: Any, what: str) -> W:
    """Return a struct of the specification from a struct, or from a dict in either spelling.

    Unknown members and values of a wrong type are refused: a client would not see them, or would
    refuse the whole list.
    """
    if isinstance(given, kind):
        members: dict[str, Any] = msgspec.to_builtins(given)
    elif isinstance(given, Mapping):
        sent = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        names = {**sent, **{name: name for name in sent.values()}}
        for name in given:
            if name not in names:
                guess = did_you_mean(str(name), names)
                raise TypeError(
                    f"{what}: `{kind.__name__}` has no member `{name}`{guess or ';'} "
                    f"The members are {_listed(sent.values())}"
                )
        members = {names[name]: value for name, value in given.items()}
    else:
        raise TypeError(f"{what}: expected `{kind.__name__}(…)` or a dict, not {given!r}")
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        raise TypeError(f"{what}: not a valid `{kind.__name__}`: {error}") from None


def icons_of(given: Iterable[Any] | None, what: str) -> list[Icon] | None:
    """Return the icons of something that is registered, checked."""
    if given is None:
        return None
    if isinstance(given, (str, Icon, Mapping)):
        raise TypeError(f"{what}: `icons` must be a list, as in `icons=[Icon(src=…)]`")
    icons = []
    for icon in given:
        if isinstance(icon, str):
            raise TypeError(f"{what}: an icon is not text; write `Icon(src={icon!r})`")
        icons.append(record_of(Icon, icon, f"{what}: icon"))
    return icons


def check_uri(uri: Any, what: str) -> None:
    """Refuse a URI or URI template that clients cannot use."""
    if not isinstance(uri, str):
        raise TypeError(f"{what}: the URI must be text, as in `config://app`, not {uri!r}")
    if not re.fullmatch(_URI, re.sub(_EXPRESSION, "x", uri)):
        raise ValueError(
            f"{what} `{uri}`: not a URI; it begins with a scheme and has no blanks, as in "
            "`config://app` or `users://{name}`"
        )


def check_input_schema(given: Any, own: dict[str, Any], what: str) -> None:
    """Refuse a handwritten input schema that lets through what the function cannot take.

    Args:
        given: The handwritten schema.
        own: The schema of the function's own signature.
        what: Names the tool in messages.
    """
    if not isinstance(given, dict) or given.get("type") != "object":
        raise ValueError(f'{what}: the input schema must have `"type": "object"` at its root')
    properties = given.get("properties", {})
    parameters = own.get("properties", {})
    if not isinstance(properties, dict):
        return  # the schema is invalid, and is refused as such
    if own.get("additionalProperties", True) is False:
        for name in properties:
            if name not in parameters:
                guess = did_you_mean(name, parameters)
                raise ValueError(
                    f"{what}: the input schema has a property `{name}`, but the function has no "
                    f"such parameter{guess}"
                )
    if _is_composed(given):
        return
    for name in own.get("required", ()):
        if name not in given.get("required", ()):
            raise ValueError(
                f"{what}: the function needs `{name}`, but the input schema does not require it; "
                f'add it to "required", or give the parameter a default'
            )


def _is_composed(schema: dict[str, Any]) -> bool:
    """Return whether other parts of a schema may say what is required."""
    return any(key in schema for key in ("allOf", "anyOf", "oneOf", "$ref", "if", "$dynamicRef"))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
