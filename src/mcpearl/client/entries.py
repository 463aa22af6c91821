"""A server's entry in the configuration of a host, such as Claude Desktop, VS Code or Cursor.

Hosts share most of the format: a command with arguments and environment, or an address with headers.
`host/config` reads whole files; `targets` finds out how to reach the server of an entry.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from mcpearl.protocol.errors import McpearlError, brief

Wire = Literal["stdio", "http", "sse", "ws"]

SECTIONS: tuple[tuple[str, ...], ...] = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Where configuration files list their servers: most hosts, VS Code, and settings of VS Code."""

_WIRES: dict[str, Wire] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
    "ws": "ws",
    "websocket": "ws",
}
_ADDRESSES = ("url", "serverUrl", "httpUrl")  # of most hosts, Windsurf, Gemini
FIELDS = {"type", "transport", "command", "args", "env", "cwd", "headers", "disabled", "enabled"}
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_SECRET = 4  # characters that a value must have to be treated as a secret
_HARMLESS = ("/", "~", "http://", "https://")  # paths and addresses, which errors may show
_JSON_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


class ConfigError(McpearlError, ValueError):
    """A host's configuration, or one entry of it, cannot be used."""


class ServerEntry(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """One server of a host, ready to be connected to: pass it to `Client`.

    Exactly one of `command`, `url` and `target` is set, unless the entry is disabled.
    """

    name: str
    """The server's name in the configuration."""
    command: tuple[str, ...] | None = None
    """The command that starts the server, with its arguments."""
    env: Mapping[str, str] = {}
    """Environment variables of the process."""
    cwd: str | None = None
    """Directory in which the process starts."""
    url: str | None = None
    """The server's address."""
    headers: Mapping[str, str] = {}
    """Headers of every HTTP request."""
    wire: Wire | None = None
    """The transport that `type` names; None if the address decides."""
    target: Any = None
    """A `Server`, a path or a transport, if the configuration is an object of this process."""
    disabled: bool = False
    """Whether the entry is disabled; then only its name is read."""
    extra: Mapping[str, Any] = {}
    """Members that only some hosts know, as they were written."""
    hidden: frozenset[str] = frozenset()
    """Values of environment variables that the entry uses; they may be secrets."""

    def hide(self, text: str) -> str:
        """Return a message with the values of variables replaced by an ellipsis.

        Args:
            text: The message, which may be shown or logged.
        """
        return hide(text, self.hidden)

    def __repr__(self) -> str:
        # Arguments, environment, headers and addresses may hold secrets.
        kind = "disabled" if self.disabled else "command" if self.command else "address"
        return f"<ServerEntry {self.name!r}, {kind if self.target is None else 'object'}>"


def hide(text: str, values: Iterable[str]) -> str:
    """Return a text with an ellipsis in place of each of the values, the longest first."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "…")
    return text


class Surroundings(Struct, frozen=True):
    """Where the values of an entry's variables come from, and whether it may use them."""

    env: Mapping[str, str]
    """Environment variables, for `${NAME}`, `${NAME:-default}` and `${env:NAME}`."""
    folder: Path
    """The folder of the project, for `${workspaceFolder}`, and for a relative `cwd`."""
    trusted: bool = True
    """Whether the author of the entry may start programs here and read variables."""


def surroundings(folder: Path | None = None) -> Surroundings:
    """Return the surroundings that this process has.

    Args:
        folder: The folder of the project; by default the current directory.
    """
    return Surroundings(os.environ, Path.cwd() if folder is None else folder)


def servers_in(configuration: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the servers of a whole configuration by name; None if it is not a whole one."""
    for section in SECTIONS:
        found: Any = configuration
        for key in section:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping) and not is_entry(found):
            return found
    return None


def is_entry(value: Mapping[str, Any]) -> bool:
    """Tell whether an object is one server's entry: it has a command, or an address."""
    return any(isinstance(value.get(key), str) for key in ("command", *_ADDRESSES))


def read_entry(name: str, value: Any, around: Surroundings) -> ServerEntry:
    """Read what a configuration says about one server.

    Args:
        name: The server's name.
        value: An entry as hosts write it, or any other target that `Client` accepts, such as a client.
        around: The values of variables.

    Raises:
        ConfigError: The entry cannot be used; the message says why.
    """
    entry = value if isinstance(value, ServerEntry) else getattr(value, "entry", None)
    if isinstance(entry, ServerEntry):
        return entry if entry.name == name else replace(entry, name=name)
    if isinstance(value, Mapping):
        if _is_disabled(value):
            return ServerEntry(name=name, disabled=True)
        return _EntryReader(name, value, around).entry()
    if isinstance(value, str) and "://" in value:
        return ServerEntry(name=name, url=value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if value and all(isinstance(part, str) for part in value):
            return ServerEntry(name=name, command=tuple(value))
    elif isinstance(value, str | Path) or hasattr(value, "connect") or hasattr(value, "send"):
        return ServerEntry(name=name, target=value)
    raise ConfigError(f"{_called(name)} is an object, not {_json_name(value)}")


def only_entry(configuration: Mapping[str, Any], around: Surroundings) -> ServerEntry | None:
    """Return the entry for a client: the mapping itself, or the one entry of a whole configuration.

    If a whole configuration has several servers, return None.
    """
    servers = servers_in(configuration)
    if servers is None:
        return read_entry("", configuration, around)
    entries = {
        name: value
        for name, value in servers.items()
        if not (isinstance(value, Mapping) and _is_disabled(value))
    }
    if not entries:
        raise ConfigError("a server's configuration is needed, and this one has no servers")
    if len(entries) > 1:
        return None
    ((name, value),) = entries.items()
    return read_entry(name, value, around)


def _is_disabled(value: Mapping[str, Any]) -> bool:
    return value.get("disabled") is True or value.get("enabled") is False


def _called(name: str) -> str:
    return f"a server's configuration (`{brief(name, 64)}`)" if name else "a server's configuration"


def _json_name(value: Any) -> str:
    """Name the kind of a value without showing it: it may be a secret."""
    if isinstance(value, Mapping):
        return "an object"
    return _JSON_NAMES.get(type(value)) or (
        "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
    )


class _EntryReader:
    """Reads the members of one entry."""

    def __init__(self, name: str, value: Mapping[str, Any], around: Surroundings) -> None:
        self._name = name
        self._value = value
        self._around = around
        self._hidden: set[str] = set()

    def entry(self) -> ServerEntry:
        value = self._value
        address = next((key for key in _ADDRESSES if value.get(key) is not None), None)
        has_command = value.get("command") is not None
        wire = self._wire()
        if address is not None and has_command and wire is None:
            raise self._wrong(f"has both `command` and `{address}`; its `type` has to choose one")
        if has_command and (address is None or wire == "stdio"):
            if wire not in (None, "stdio"):
                raise self._wrong(f"has the type `{wire}` and a `command`; that needs a `url`")
            return self._process()
        if address is None:
            members = brief(", ".join(f"`{key}`" for key in value)) or "nothing"
            raise self._wrong(f"needs `command` or `url`; it has {members}")
        if wire == "stdio":
            raise self._wrong(f"has the type `stdio` and no `command`, but `{address}`")
        return self._address(address, wire)

    def _wire(self) -> Wire | None:
        kind = self._value.get("type")
        kind = self._value.get("transport") if kind is None else kind
        if kind is None:
            return None
        if not isinstance(kind, str) or kind not in _WIRES:
            shown = f"`{brief(kind, 64)}`" if isinstance(kind, str) else _json_name(kind)
            raise self._wrong(f"has `stdio`, `http`, `sse` or `ws` as `type`, not {shown}")
        return _WIRES[kind]

    def _process(self) -> ServerEntry:
        if not self._around.trusted:
            raise self._wrong("starts a program, which a configuration that is not trusted may not")
        args = self._value.get("args")
        if args is not None and not isinstance(args, list | tuple):
            raise self._wrong(f"has a list as `args`, not {_json_name(args)}")
        command = [self._text("command", self._value["command"])]
        command += [self._text(f"args[{at}]", each) for at, each in enumerate(args or ())]
        if not command[0]:
            raise self._wrong("has an empty `command`")
        command[0] = _at_home(command[0])
        return ServerEntry(
            name=self._name,
            command=tuple(command),
            env=self._environment(),
            cwd=self._cwd(),
            wire="stdio",
            extra=self._extra(),
            hidden=frozenset(self._hidden),
        )

    def _address(self, key: str, wire: Wire | None) -> ServerEntry:
        url = self._text(key, self._value[key])
        if "://" not in url:
            raise self._wrong(f"has an address such as https://example.com/mcp as `{key}`")
        headers = self._texts("headers")
        return ServerEntry(
            name=self._name,
            url=url,
            headers=headers,
            wire=wire,
            extra=self._extra(),
            hidden=frozenset(self._hidden),
        )

    def _environment(self) -> dict[str, str]:
        """Return the variables of the file that `envFile` names (as in VS Code), then those of `env`."""
        path = self._value.get("envFile")
        from_file = {}
        if path is not None:
            place = self._around.folder / _at_home(self._text("envFile", path))
            try:
                from_file = _env_lines(place.read_text("utf-8"))
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                raise self._wrong(f"names {place} as `envFile`: {reason}") from None
        return {**from_file, **self._texts("env")}

    def _cwd(self) -> str | None:
        cwd = self._value.get("cwd")
        if cwd is None:
            return None
        if not isinstance(cwd, str | Path):
            raise self._wrong(f"has a path as `cwd`, not {_json_name(cwd)}")
        return str(self._around.folder / _at_home(self._text("cwd", str(cwd))))

    def _texts(self, member: str) -> dict[str, str]:
        """Return a member that maps names to text. As in VS Code, null is skipped, a number is text."""
        given = self._value.get(member)
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise self._wrong(f"has an object as `{member}`, not {_json_name(given)}")
        texts = {}
        for name, value in given.items():
            if value is None:
                continue
            if not isinstance(name, str) or not isinstance(value, str | int | float):
                raise self._wrong(
                    f"has text as `{member}`: `{brief(str(name), 64)}` is {_json_name(value)}"
                )
            if isinstance(value, bool):
                value = str(value).lower()
            texts[name] = self._text(f"{member}.{brief(name, 64)}", str(value))
        return texts

    def _text(self, member: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._wrong(f"has text as `{member}`, not {_json_name(value)}")
        if "\0" in value:
            raise self._wrong(f"has text without null characters as `{member}`")
        if "${" not in value:
            return value
        return _VARIABLE.sub(lambda found: self._variable(member, found[1]), value)

    def _variable(self, member: str, variable: str) -> str:
        """Return the value of a variable."""
        shown = f"`${{{brief(variable, 64)}}}` in `{member}`"
        if not self._around.trusted:
            raise self._wrong(f"uses {shown}, which a configuration that is not trusted may not")
        folder = self._around.folder
        match variable:
            case "workspaceFolder":
                return str(folder)
            case "workspaceFolderBasename":
                return folder.name
            case "userHome":
                return str(Path.home())
            case "pathSeparator" | "/":
                return os.sep
        kind, colon, name = variable.partition(":")
        if colon and kind == "input":
            raise self._wrong(
                f"uses {shown}, which VS Code asks its user for; "
                "put an environment variable in its place, such as `${API_KEY}`"
            )
        name, has_default, default = (name if kind == "env" and colon else variable).partition(":-")
        if ":" in name or not name:
            raise self._wrong(f"uses {shown}, which is not known; use `${{NAME}}`")
        value = self._around.env.get(name)
        if value is not None and len(value) >= _SECRET and not value.startswith(_HARMLESS):
            self._hidden.add(value)
        if has_default:
            return value or default
        if value is None:
            raise self._wrong(
                f"uses {shown}, and the environment variable {name} is not set; "
                f"set it, or write `${{{name}:-default}}`"
            )
        return value

    def _extra(self) -> dict[str, Any]:
        known = {*FIELDS, *_ADDRESSES, "envFile"}
        return {key: value for key, value in self._value.items() if key not in known}

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(hide(f"{_called(self._name)} {what}", self._hidden))


def _at_home(path: str) -> str:
    return str(Path(path).expanduser()) if path.startswith("~/") else path


def _env_lines(text: str) -> dict[str, str]:
    """Read lines of `NAME=value`, with comments, `export` and quotes."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or name.startswith("#"):
            continue
        if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
            value = value[1:-1]
        found[name] = value
    return found
