"""The gateway: a server whose parts are the servers of a configuration."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Unpack

from mcpearl._version import __version__
from mcpearl.client.entries import ConfigError, ServerEntry
from mcpearl.gateway.options import ServerOptions
from mcpearl.gateway.settings import Access, UpstreamSettings
from mcpearl.gateway.trust import objection_to
from mcpearl.gateway.upstream import Upstream
from mcpearl.host.config import ConfigSource, HostConfig, read_config
from mcpearl.host.records import ServerStatus
from mcpearl.protocol.errors import brief
from mcpearl.server.composition.rewrite import Rewrite
from mcpearl.server.server import Server
from mcpearl.types.capabilities import (
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
)

logger = logging.getLogger("mcpearl.gateway")
_CHANGED = ListChangedCapability(list_changed=True)
_PROMISED = ServerCapabilities(
    tools=_CHANGED,
    prompts=_CHANGED,
    resources=ResourcesCapability(list_changed=True, subscribe=True),
    completions={},
    logging={},
)
_LONGEST = 10_000  # characters of an upstream's instructions
_LOOK = 1.0  # seconds between two checks of the file


class Gateway(Server):
    """Many servers behind one: a `Server`, served on any transport, in both eras at once.

    >>> gateway = Gateway("mcp.json")
    >>> gateway.run("http", port=8000)

    An upstream is one of the servers behind the gateway. The tool `forecast` of the upstream `weather`
    is called `weather__forecast`. If an upstream is down, slow or broken, only its own tools are missing;
    the others are not affected, and the gateway keeps trying to connect to it.

    Args:
        source: The path or the text of a configuration file (Claude Desktop, Claude Code, VS Code,
            Cursor), or an object: `{"mcpServers": {…}}`, or servers by name, each any target that
            `Client` accepts, such as `{"weather": "https://…", "own": app}`.
        name: The gateway's name, which clients show and log.
        version: Its version.
        upstreams: Timeouts and limits for upstreams, and when to reconnect to them.
        access: How the gateway authenticates to upstreams, by name; see `Access`. By default it uses the
            headers and the environment of the configuration, and passes on no credentials of the caller.
        rewrite: Changes to what upstreams offer, by name; see `Rewrite`.
        prefix: Whether an upstream's name is part of the names of its tools and prompts.
        watch: Whether to watch the file, and add, remove and change servers with it.
        trusted: Whether the configuration comes from an author who may start programs, reach private
            addresses and use environment variables here. If not, only servers at public https addresses
            are used, and entries with variables are refused.
        eager: Whether to wait, before serving, until every upstream is connected or `patience` is over.
        **options: Options of every server: `auth`, `limits`, `middleware`, `state_keys`, and so on.
    """

    def __init__(
        self,
        source: ConfigSource | HostConfig,
        *,
        name: str = "gateway",
        version: str = __version__,
        upstreams: UpstreamSettings | None = None,
        access: Mapping[str, Access] | None = None,
        rewrite: Mapping[str, Rewrite] | None = None,
        prefix: bool = True,
        watch: bool = True,
        trusted: bool = True,
        eager: bool = False,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(name, version, **options)
        self._settings = upstreams or UpstreamSettings()
        self._access = dict(access or {})
        self._rewrites = dict(rewrite or {})
        self._prefix = prefix
        self._trusted = trusted
        self._eager = eager
        self._own_instructions = options.get("instructions")
        self._entries: dict[str, ServerEntry] = {}
        self._upstreams: dict[str, Upstream] = {}
        self._unused: dict[str, ServerStatus] = {}  # disabled, or with a problem
        self._have_composition().promise(_PROMISED)
        config = self._read(source)
        self._file = _file_of(source) if watch else None
        self._seen = None if self._file is None else _stamp(self._file)
        self.update(config)
        self._compose()
        if self._file is not None:
            self.background(name="configuration")(self._watch)

    @property
    def servers(self) -> dict[str, ServerStatus]:
        """The status of each upstream by name, including those that cannot be used, with the reason."""
        up = {name: upstream.status for name, upstream in self._upstreams.items()}
        return {**up, **self._unused}

    def upstream_states(self) -> Iterator[str]:
        """Return the state of each upstream, including those that cannot be used."""
        yield from super().upstream_states()
        for status in self._unused.values():
            yield str(status.state)

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The upstreams by name."""
        return dict(self._upstreams)

    def _introduce(self) -> None:
        """Announce the instructions of the upstreams, unless the gateway has its own."""
        if self._own_instructions is not None:
            return
        found = {name: each.instructions for name, each in self._upstreams.items()}
        texts = [
            text if not self._prefix else f"{name}: {text}"
            for name, text in found.items()
            if text is not None
        ]
        joint = "\n\n".join(brief(text, _LONGEST) for text in texts)
        self.core.offer.instructions = joint or None

    # The configuration

    def _read(self, source: ConfigSource | HostConfig) -> HostConfig:
        if isinstance(source, HostConfig):
            return source
        return read_config(source, trusted=self._trusted)

    def update(self, config: HostConfig) -> None:
        """Use another configuration; upstreams with unchanged entries stay connected, with their calls.

        Args:
            config: The configuration, as `read_config` returns it.
        """
        problems = {each.server: each.message for each in config.problems}
        for note in config.notes:
            logger.warning("%s: %s", note.server, note.message)
        if not config.entries and not problems:
            logger.warning("%s names no servers yet", config.source)
        wanted: dict[str, ServerEntry] = {}
        unused: dict[str, ServerStatus] = {}
        for name, entry in config.entries.items():
            if entry.disabled:
                unused[name] = ServerStatus(name=name, state="disabled")
                continue
            objection = None if self._trusted else objection_to(entry)
            if objection is None:
                wanted[name] = entry
            else:
                problems[name] = objection
        for name, message in problems.items():
            logger.warning("server `%s` is not used: %s", name, message)
            unused[name] = ServerStatus(name=name, state="invalid", reason=message)
        self._unused = unused
        for name, entry in list(self._entries.items()):
            if wanted.get(name) != entry:
                self._remove(name)
        for name, entry in wanted.items():
            if name not in self._entries:
                self._add(entry)

    def _add(self, entry: ServerEntry) -> None:
        name = entry.name
        upstream = Upstream(
            entry,
            self._settings,
            self._access.get(name),
            trusted=self._trusted,
            eager=self._eager,
            introduced=self._introduce,
        )
        self._entries[name] = entry
        self._upstreams[name] = upstream
        self._mount_part(name, upstream, self._rewrites.get(name), self._prefix)

    def _remove(self, name: str) -> None:
        del self._entries[name]
        del self._upstreams[name]
        self.unmount(name)

    async def _watch(self) -> None:
        """Apply the configuration file whenever it changes."""
        assert self._file is not None
        while True:
            await asyncio.sleep(_LOOK)
            stamp = _stamp(self._file)
            if stamp == self._seen:
                continue
            self._seen = stamp
            try:
                config = self._read(self._file)
            except ConfigError as error:
                logger.error("the configuration stays as it was: %s", error)
                continue
            logger.info("the configuration changed")
            self.update(config)


def _file_of(source: Any) -> Path | None:
    """Return the file that a configuration comes from; None if it is text or an object."""
    if isinstance(source, Path):
        return source.expanduser()
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return Path(source).expanduser()
    return None


def _stamp(file: Path) -> Any:
    """Return a value that changes when the file does; None if there is no such file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
