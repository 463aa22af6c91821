"""What a command is about: from the word on the command line to a connected client."""

import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.progress import Progress
from mcpearl.runtime.arguments import did_you_mean

if TYPE_CHECKING:
    from mcpearl.client.client import Client
    from mcpearl.client.entries import ServerEntry
    from mcpearl.server.server import Server
else:
    Location = ServerEntry = Any  # they take longer to load than most commands


_SPACE = re.compile(r"\s")


class ServerTarget(NamedTuple):
    """A server, and how to reach it."""

    text: str
    """As it was written."""
    env: dict[str, str]
    cwd: str | None
    headers: dict[str, str]
    auth: str | None
    protocol: str
    timeout: float
    verbose: bool

    def reach(self) -> Any:
        """Return what a `Client` takes: an address, a command or a host's entry."""
        return resolve(self.text)

    def runs_already(self) -> bool:
        """Return whether the target is at an address, and not started for the command."""
        return way_of(self.reach())[1] is not None


def target_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add TARGET and the options of connecting to a command, which gets them as `target`."""
    return _with_target(function, required=True)


def optional_target_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a TARGET that may be left out to a command; `target` is None then."""
    return _with_target(function, required=False)


def _with_target(function: Callable[..., Any], *, required: bool) -> Callable[..., Any]:
    def call(out: CommandOutput, target: str | None, **given: Any) -> Any:
        options = {name: given.pop(name) for name in _NAMES}
        chosen = None if target is None else target_of({"target": target, **options})
        return function(out, target=chosen, **given)

    call.__doc__ = function.__doc__
    call.__module__ = function.__module__
    call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        call = option(call)
    return click.argument("target", required=required, shell_complete=complete_target)(call)


_OPTIONS = (
    click.option(
        "--env", multiple=True, metavar="NAME=VALUE", help="A variable of its environment."
    ),
    click.option("--env-file", type=click.Path(exists=True), help="A file of such variables."),
    click.option("--cwd", type=click.Path(exists=True), help="The directory it is started in."),
    click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="A header of requests."),
    click.option(
        "--auth", metavar="oauth|TOKEN", help="Log in with the browser, or a bearer token."
    ),
    click.option("--protocol", default="auto", metavar="VERSION", help="The one version to speak."),
    click.option("--timeout", default=60.0, metavar="SECONDS", help="For each answer. [60]"),
    click.option("-v", "--verbose", is_flag=True, help="Show what the server writes to stderr."),
)


_NAMES = ("env", "env_file", "cwd", "header", "auth", "protocol", "timeout", "verbose")


def target_of(given: dict[str, Any]) -> ServerTarget:
    """Return the target that TARGET and the options of connecting mean."""
    env_file = given["env_file"]
    return ServerTarget(
        given["target"],
        {
            **(read_env_file(env_file) if env_file else {}),
            **dict(pairs(given["env"], "=", "--env")),
        },
        headers=dict(pairs(given["header"], ":", "--header")),
        **{name: given[name] for name in ("cwd", "auth", "protocol", "timeout", "verbose")},
    )


def completing(*kinds: str) -> Callable[..., list[Any]]:
    """Return what completes a name or URI in a shell with what TARGET offers of these kinds."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from mcpearl.cli.completing import complete_offer

        return complete_offer(ctx, incomplete, kinds)

    return complete


def pairs(given: tuple[str, ...], mark: str, option: str) -> list[tuple[str, str]]:
    """Split `NAME=VALUE` at the mark."""
    found = []
    for each in given:
        name, has, value = each.partition(mark)
        if not has or not name.strip():
            raise CommandFailed(f"{option} is NAME{mark}VALUE, not {each!r}", Exit.USAGE)
        found.append((name.strip(), value.strip() if mark == ":" else value))
    return found


def read_env_file(path: str) -> dict[str, str]:
    """Read a file of `NAME=value` lines; `export`, comments and quotes are understood."""
    found = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, has, value = text.partition("=")
        if not has:
            raise CommandFailed(f"{path}:{number} is not NAME=value: {line!r}", Exit.USAGE)
        found[name.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


def resolve(text: str) -> Any:
    """Return what a `Client` takes for a target: an address, a command as a list, or a host's entry."""
    if _is_command(text):
        return _words(text)
    if "://" in text:
        return text
    place, _, name = text.rpartition(":")
    if text.endswith(".json") or place.endswith(".json"):
        return _configured(*((place, name) if place.endswith(".json") else (text, None)))
    file = _python_file(text)
    if file is not None and (Path(file).is_file() or len(_words(text)) == 1):
        refuse_missing(text)
        return serving_command(text)
    if Path(text).suffix in (".js", ".mjs") and Path(text).is_file():
        return text
    if (entry := _known(text)) is not None:
        return entry
    if shutil.which(text):
        return [text]
    names = {name for each in configured_servers() for name in (each.entry.name, _full_name(each))}
    raise CommandFailed(
        f"there is no file, command or configured server {text!r}{did_you_mean(text, names)}",
        Exit.USAGE,
        "a target is server.py, a URL, 'a command in quotes', mcp.json, or the name of a server",
    )


def way_of(reach: Any) -> tuple[list[str] | None, str | None]:
    """Return the command or the address that `resolve` found for a target."""
    if isinstance(reach, list):
        return reach, None
    if isinstance(reach, str):
        return (None, reach) if "://" in reach else (["node", reach], None)
    return (list(reach.command) if reach.command else None), reach.url


def passed_on(text: str) -> "Server | None":
    """Return a server that passes on what a target offers; None for a file or module of Python."""
    if _python_file(text) is not None and not _is_command(text):
        return None
    from mcpearl.gateway.gateway import Gateway

    if text.endswith(".json") and not _is_command(text):
        return Gateway(text)
    if not (_is_command(text) or "://" in text or ".json:" in text or _suffix(text)):
        entry = _known(text)
        if entry is None:
            return None
        return Gateway({entry.name: entry}, name=entry.name, prefix=False)
    reach = resolve(text)
    name = getattr(reach, "name", None) or "upstream"
    return Gateway({name: reach}, name=name, prefix=False)


def _is_command(text: str) -> bool:
    """Return whether a target is a command: it has several words, and is not a file with a blank."""
    file = Path(text) if text.endswith((".py", ".json", ".js")) else Path(text.rpartition(":")[0])
    return _SPACE.search(text.strip()) is not None and not file.is_file()


def _suffix(text: str) -> bool:
    return Path(text).suffix in (".js", ".mjs")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CommandFailed(f"the command {text!r} cannot be read: {error}", Exit.USAGE) from None


def _python_file(text: str) -> str | None:
    """Return the file of `server.py` or `server.py:app`."""
    return next((each for each in (text, text.rpartition(":")[0]) if each.endswith(".py")), None)


def refuse_missing(text: str) -> None:
    """Refuse a target that names a Python file which is not there."""
    file = _python_file(text)
    if file is not None and not Path(file).is_file():
        near = sorted(str(each) for each in Path(file).parent.glob("*.py"))
        meant = did_you_mean(file, near)
        raise CommandFailed(f"there is no file {file!r} in {Path.cwd()}{meant}", Exit.USAGE)


def serving_command(target: str) -> list[str]:
    """Return the command that serves a Python file on stdio.

    With `-P`, files of the current directory do not stand in for modules that mcpearl imports.
    """
    return [sys.executable, "-P", "-m", "mcpearl", "run", target, "--stdio"]


def _configured(path: str, name: str | None) -> ServerEntry:
    """Return an entry of a configuration file; the only one of a file needs no name."""
    from mcpearl.host.config import read_config

    config = read_config(path)
    if name is None and len(config.entries) == 1:
        return next(iter(config.entries.values()))
    if name is not None and name in config.entries:
        return config.entries[name]
    for problem in config.problems:
        if problem.server == name:
            raise CommandFailed(f"{path}: {problem.server}: {problem.message}", Exit.USAGE)
    known = ", ".join(config.entries) or "none"
    said = f"{path} has several servers" if name is None else f"{path} has no server {name!r}"
    raise CommandFailed(f"{said}: {known}", Exit.USAGE, f"say which: `{path}:NAME`")


class ConfiguredServer(NamedTuple):
    """A server in a file of a host on this computer."""

    host: str
    scope: str
    entry: ServerEntry


def configured_servers() -> list[ConfiguredServer]:
    """Return the servers that hosts on this computer have; files that cannot be read have none."""
    from mcpearl.host.config import read_config
    from mcpearl.host.locations import locations

    found = []
    for location in locations():
        if not location.path.is_file():
            continue
        try:
            entries = read_config(location.path).entries
        except ValueError:
            continue
        found += [
            ConfiguredServer(location.host, location.scope, entry) for entry in entries.values()
        ]
    found += _of_goose()
    return [each for each in found if not each.entry.disabled]


def _of_goose() -> list[ConfiguredServer]:
    from mcpearl.cli.installing.goose import goose_file, goose_servers
    from mcpearl.client.entries import ConfigError, read_entry, surroundings

    file, found = goose_file(), []
    try:
        servers = goose_servers(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError):
        return []
    for name, value in servers.items():
        with suppress(ConfigError):
            entry = read_entry(name, value, surroundings())
            found.append(ConfiguredServer("goose", "user", entry))
    return found


def _known(text: str) -> ServerEntry | None:
    """Return the server of a name, which may begin with its host: `weather`, `cursor:weather`."""
    servers = configured_servers()
    fitting = [each for each in servers if text in (each.entry.name, _full_name(each))]
    if not fitting:
        return None
    first = fitting[0]
    if any(each.entry != first.entry for each in fitting[1:]):
        names = ", ".join(map(_full_name, fitting))
        raise CommandFailed(
            f"several hosts have a server {text!r}", Exit.USAGE, f"say which: {names}"
        )
    return first.entry


def _full_name(found: ConfiguredServer) -> str:
    return f"{found.host}:{found.entry.name}"


@asynccontextmanager
async def connected(
    target: ServerTarget, out: CommandOutput, **options: Any
) -> AsyncIterator["Client"]:
    """Connect to a target; what it writes to stderr is shown if the target asks for it.

    Args:
        target: the target.
        out: where to write.
        options: further ones of `Client`.
    """
    from mcpearl.client.client import Client
    from mcpearl.types.base import Implementation

    def heard(line: str) -> None:
        if target.verbose:
            out.note(line, dim=True)

    reach = target.reach()
    try:
        client = Client(
            reach,
            env=target.env or None,
            cwd=target.cwd,
            headers=target.headers or None,
            auth=_auth(target.auth),
            protocol=target.protocol,
            timeout=target.timeout,
            connect_timeout=target.timeout,
            max_timeout=max(600.0, target.timeout),
            on_stderr=heard,
            reconnect=options.pop("reconnect", False),
            info=Implementation(name="mcpearl-cli", version=_version()),
            **options,
        )
    except (ValueError, TypeError, OSError) as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    async with AsyncExitStack() as stack:
        # Who logs in is told so in between, and what a server writes is shown as it comes.
        quiet = target.verbose or target.auth == "oauth"
        connecting = nullcontext() if quiet else Progress(out, f"connecting to {target.text}")
        async with connecting:
            await stack.enter_async_context(client)
        yield client


def _auth(given: str | None) -> Any:
    if given is None or given == "oauth":
        return given
    from mcpearl.auth.client.bearer import BearerToken

    return BearerToken(given)


def _version() -> str:
    from mcpearl._version import __version__

    return __version__


def complete_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Return the targets whose names begin so, for a shell."""
    from click.shell_completion import CompletionItem

    from mcpearl.cli.completing import is_plain

    names = sorted({each.entry.name for each in configured_servers()})
    fitting = [name for name in names if incomplete and name.startswith(incomplete)]
    if not fitting:
        return [CompletionItem(incomplete, type="file")]
    # bash completes either files of its own or what it is given, so it is given the files, too.
    files = sorted(each.name for each in Path().iterdir() if each.name.startswith(incomplete))
    return [CompletionItem(each) for each in (*fitting, *files) if is_plain(each)]
