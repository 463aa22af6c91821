"""What a server is made of: the parts that are mounted in it, at any time."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mcpearl.server.dispatch import Dispatcher
from mcpearl.server.handler import Handler
from mcpearl.server.telling import Telling
from mcpearl.server.tree import ServerTree

if TYPE_CHECKING:
    from mcpearl.server.composition.composition import Composition
    from mcpearl.server.composition.mount import Mount
    from mcpearl.server.composition.part import Catalog, Part
    from mcpearl.server.composition.rewrite import Rewrite
    from mcpearl.server.core import ServerCore
    from mcpearl.server.extensions import ServerExtension
    from mcpearl.server.tasks.engine import TaskTools
else:
    # Most servers have no parts, and do not load these.
    Catalog = Composition = Mount = Part = Rewrite = ServerExtension = TaskTools = Any

_NO_HANDLER = Handler()


class Composing(Telling):
    """The part of a `Server` that mounts others in it."""

    parts: ServerTree
    _dispatcher: Dispatcher
    _extensions: list[ServerExtension]
    _page_size: int
    _composition: Composition | None = None
    _mounted = 0  # how many parts were ever mounted
    _stopping: "tuple[asyncio.Task[None], ...]" = ()

    def _compose(self) -> None:
        raise NotImplementedError

    def mount(
        self, name: str, other: Any, *, rewrite: "Rewrite | None" = None, prefix: bool = True
    ) -> "Mount":
        """Offer what another server offers, under a name, now or at run time.

        Its tools and prompts are called `name__tool`; its resources keep their URIs. Clients are
        notified that the lists changed. Its middleware runs inside this server's, and its lifespan is
        held as long as it is mounted and this server runs.

        >>> app.mount("weather", weather)                        # a Server of this process
        >>> app.mount("files", ["npx", "server-filesystem", "."])  # a command, a file, or a URL

        Args:
            name: The name, of letters, digits, `_` and `-`.
            other: A `Server`, a `Handler`, or whatever a `Client` can be made for: a URL, the path of
                a file, a command as a list, an entry of a host's configuration, a server of a host
                (`host["weather"]`), to which the mount gets connections of its own.
            rewrite: What is changed of it before clients see it; see `Rewrite`.
            prefix: Whether its name is part of the names of its tools and prompts.

        Returns:
            The mount, whose `rewrite` can be changed at run time.
        """
        from mcpearl.server.composition.names import check_name
        from mcpearl.server.composition.part import part_of

        check_name(name, self.mounts)
        if other is self or _is_inside(self.core, getattr(other, "core", None)):
            raise ValueError("a server cannot be mounted in itself, nor in one that it holds")
        return self._mount_part(name, part_of(name, other), rewrite, prefix)

    def _mount_part(
        self, name: str, part: "Part", rewrite: "Rewrite | None", prefix: bool
    ) -> "Mount":
        from mcpearl.server.composition.mount import Mount
        from mcpearl.server.composition.rewrite import UNCHANGED

        composition = self._have_composition()
        self._mounted += 1
        mount = Mount(
            name,
            self._mounted,
            part,
            self.core,
            rewrite or UNCHANGED,
            prefix,
            self._part_changed,
            self.notify_resource_updated,
            composition.index.doubt,
            lambda: self.bus,
        )
        composition.add(mount)
        if part.is_upstream:
            self.core.roster.names.changed("upstream", name, part)
        part.join(mount)
        if part.tasked:
            self._have_tasks()
        self.core.offer.beyond = composition.beyond
        self._compose()
        if self._uptime.loop is not None:
            self._uptime.on_loop(mount.start)
        self._announce_all()
        return mount

    def unmount(self, name: str) -> None:
        """End offering what was mounted under a name. Its calls in flight may finish.

        Args:
            name: The name.

        Raises:
            KeyError: Nothing is mounted under this name.
        """
        composition = self._composition
        if composition is None or name not in composition.mounts:
            known = ", ".join(f"`{each}`" for each in self.mounts) or "nothing"
            raise KeyError(f"nothing is mounted as `{name}`; what is mounted: {known}")
        mount = composition.remove(name)
        if mount.part.is_upstream:
            self.core.roster.names.changed("upstream", name, None)
        mount.part.leave(mount)
        self._compose()
        self._uptime.on_loop(lambda: self._end(mount))
        self._announce_all()

    @property
    def mounts(self) -> "Mapping[str, Mount]":
        """The parts that are mounted, by name."""
        return {} if self._composition is None else dict(self._composition.mounts)

    def upstream_states(self) -> Iterable[str]:
        """Return the state of each remote server that is mounted here or in a mounted server."""
        for mount in self.mounts.values():
            yield from mount.part.upstream_states()

    @property
    def catalog(self) -> "Catalog":
        """What the server and its parts offer, as far as is known without asking an upstream."""
        from mcpearl.server.composition.part import RegistryCatalog, UnknownCatalog

        own: Catalog = (
            RegistryCatalog(self._registry) if self.handler is self._registry else UnknownCatalog()
        )
        if self._composition is None:
            return own
        from mcpearl.server.composition.index import JointCatalog

        return JointCatalog(own, self._composition.index)

    @property
    def tools_known(self) -> "TaskTools":
        """The tools of the server and of its parts, by name."""
        if self._composition is not None:
            return self._composition
        return self.handler if isinstance(self.handler, Handler) else _NO_HANDLER

    def _have_composition(self) -> "Composition":
        if self._composition is None:
            from mcpearl.server.composition.composition import Composition
            from mcpearl.server.composition.upstreams import Upstreams

            handler = self.handler if isinstance(self.handler, Handler) else None
            own, catalog = self._dispatcher, self.catalog
            self._composition = Composition(own, handler, catalog, self._page_size)
            self._dispatcher = self._composition
            upstreams = Upstreams(self._composition.mounts)
            self.core.roster.names.serve("upstream", upstreams)
            self.parts.show(upstreams)
            for extension in self._extensions:
                from mcpearl.server.tasks.extension import TasksExtension

                if isinstance(extension, TasksExtension):
                    extension.look_in(self._composition)
        return self._composition

    def _part_changed(self, kind: str) -> None:
        """Note that a part's list changed. Safe from any thread."""
        composition = self._composition
        assert composition is not None
        if composition.tasked:
            self._have_tasks()
        self._changed(kind)

    def _announce_all(self) -> None:
        for kind in ("tools", "prompts", "resources"):
            self._changed(kind)

    # The life of the parts

    async def _start_parts(self) -> None:
        """Start what is mounted. If a part cannot start, the server does not start either."""
        started = [mount.start() for mount in self.mounts.values()]
        if started:
            await asyncio.gather(*started)

    def _end(self, mount: "Mount") -> None:
        ending = asyncio.get_running_loop().create_task(mount.stop())
        self._stopping = (*(each for each in self._stopping if not each.done()), ending)

    async def _stop_parts(self) -> None:
        """Stop what is mounted, and wait for what was unmounted."""
        stops = [mount.stop() for mount in self.mounts.values()]
        await asyncio.gather(*stops, *self._stopping, return_exceptions=True)
        self._stopping = ()


def _is_inside(core: "ServerCore", outer: Any) -> bool:
    """Whether a server is mounted in another one, or in a server that is."""
    return any(each.core is outer or _is_inside(each.core, outer) for each in core.enclosing)
