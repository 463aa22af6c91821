"""Chooses the wires of a server: by name or as records, with settings of the environment."""

from typing import Any

from mcpearl.runtime.arguments import did_you_mean
from mcpearl.server.serving import environment
from mcpearl.server.serving.wire import ServableWire, Stdio

WIRES = ("stdio", "http", "tcp", "unix", "ws")
# The names that other SDKs use.
_ALSO = {"streamable-http": "http", "streamable_http": "http", "sse": "http", "websocket": "ws"}


def chosen(wires: tuple[str | ServableWire, ...], options: dict[str, Any]) -> list[ServableWire]:
    """Return the wires to serve on. Options belong to the one wire that is named."""
    options = dict(options)
    transport = options.pop("transport", None)
    if transport is not None:
        if wires:
            raise TypeError(f"the wire is given twice, as {wires[0]!r} and as `transport`")
        wires = (transport,)
    if not wires:
        wires = (environment.wire() or "stdio",)
    if options and (len(wires) > 1 or not isinstance(wires[0], str)):
        raise TypeError(
            f"options ({', '.join(options)}) go with one wire by name; "
            "write several as `Http(port=8000), Tcp(port=9000)`"
        )
    return [_named(wire, options) if isinstance(wire, str) else wire for wire in wires]


def _named(given: str, options: dict[str, Any]) -> ServableWire:
    name = _ALSO.get(given, given)
    if name not in WIRES:
        hint = did_you_mean(given, (*WIRES, *_ALSO))
        known = ", ".join(f"{wire!r}" for wire in WIRES)
        raise ValueError(f"unknown transport {given!r}{hint or '; choose one of ' + known}")
    kind = kind_of(name)
    for option in options:
        if option not in kind.__struct_fields__:
            raise TypeError(_unknown_option(name, kind, option, options[option]))
    if given == "sse":
        options.setdefault("http_sse", True)
    settings = {**environment.options(kind.__struct_fields__), **options}
    try:
        wire: ServableWire = kind(**settings)
    except TypeError as error:
        if str(error).startswith("Missing required argument"):
            raise TypeError(f"cannot serve on {name!r}: {error}") from None
        raise
    return wire


def kind_of(name: str) -> type[Any]:
    """Return the record of a wire."""
    if name == "stdio":
        return Stdio
    from mcpearl.server.serving.wires import BY_NAME

    return BY_NAME[name]


def _unknown_option(name: str, kind: type[Any], option: str, value: Any) -> str:
    """Return what is wrong with an option: another wire has it, or it is misspelled."""
    others = [other for other in WIRES if option in kind_of(other).__struct_fields__]
    if others:
        return (
            f"`{option}` is not an option of {name!r} but of {', '.join(map(repr, others))}: "
            f"write `app.run({others[0]!r}, {option}={value!r})`"
        )
    fields: tuple[str, ...] = kind.__struct_fields__
    hint = did_you_mean(option, fields)
    return f"{name!r} has no option `{option}`{hint or '; it has ' + ', '.join(fields)}"
