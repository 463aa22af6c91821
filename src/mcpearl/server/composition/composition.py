"""The dispatcher of a server with parts: it finds the part that a call is for, and joins their lists.

Tools and prompts of a part have joint names (`weather__forecast`). Resources keep their URIs; if two
parts have the same URI, that of the later part is written `name+uri`, a form every part accepts.
"""

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Caller, Encoded, Notice
from mcpearl.protocol.routes import Route, unknown_method
from mcpearl.server.composition.capabilities import joined
from mcpearl.server.composition.context import SpelledPeer
from mcpearl.server.composition.index import Index
from mcpearl.server.composition.lists import LISTS, join_lists
from mcpearl.server.composition.mount import Exposed, Mount
from mcpearl.server.composition.part import Catalog
from mcpearl.server.context import Context, peer_of
from mcpearl.server.dispatch import Answering, Dispatcher
from mcpearl.server.registry.registry import unknown_tool
from mcpearl.transports.mirrored_headers import ParameterPath
from mcpearl.types.base import RequestParams, Result, decode
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.completion import PromptReference
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND
from mcpearl.types.methods import REQUESTS, Method
from mcpearl.types.resources import ReadResourceResult
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.server.handler import Handler
    from mcpearl.server.tasks.options import Tasks


_MOST_TAKERS = 1000  # methods that are remembered


class Composition:
    """The dispatcher of a server in which others are mounted.

    Args:
        own: Answers what no part has.
        handler: The server's own handler, where it has one.
        catalog: What the server itself offers, as far as that is known.
        page_size: Entries of one page of a list.
    """

    def __init__(
        self, own: Dispatcher, handler: "Handler | None", catalog: Catalog, page_size: int
    ) -> None:
        self._own = own
        self._handler = handler
        self._page_size = page_size
        self._mounts: dict[str, Mount] = {}
        self._takers: dict[str, str] = {}  # methods of extensions, each with the part that knows it
        self._announced: ServerCapabilities = own.capabilities()  # what is never withdrawn
        self.index = Index(catalog, self._mounts)
        self.mirrored: Mapping[str, Mapping[ParameterPath, str]] = _Mirrored(own, self.index)
        self.at_once: Set[str] = _AtOnce(own, self.index)
        self._answers = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._subscribe,
            "completion/complete": self._complete,
            **dict.fromkeys(LISTS, self._list),
        }

    # Mounting

    @property
    def mounts(self) -> dict[str, Mount]:
        """The parts by name, in the order of lists."""
        return self._mounts

    def add(self, mount: Mount) -> None:
        """Let a part answer from now on."""
        self._mounts[mount.name] = mount
        self.index.doubt()

    def remove(self, name: str) -> Mount:
        """Remove a part; it answers no new calls."""
        mount = self._mounts.pop(name)
        self.index.doubt()
        return mount

    def promise(self, capabilities: ServerCapabilities) -> None:
        """Announce these from now on, even while no part has them."""
        self._announced = joined(self._announced, [capabilities])

    # What it is asked

    def capabilities(self) -> ServerCapabilities:
        """Return the capabilities of the server and of all parts; lists are never withdrawn."""
        parts = [mount.part.dispatcher.capabilities() for mount in self._mounts.values()]
        now = joined(self._own.capabilities(), parts)
        self._announced = joined(now, [replace(self._announced, extensions=None)])
        return self._announced

    def routes(self) -> Mapping[str, Route]:
        """Return the methods of all parts; the server's own first, then those mounted first."""
        found: dict[str, Route] = {}
        for dispatcher in (self._own, *self._dispatchers()):
            found = {**dispatcher.routes(), **found}
        return found

    def beyond(self, method: str) -> Route | None:
        """Return the route of a method that only a part elsewhere may know; None if there is none."""
        if not any(mount.part.is_upstream for mount in self._mounts.values()):
            return None
        return Route(Method(name=method, params=RequestParams, result=Result, sender="client"))

    def notices(self) -> Mapping[str, Route]:
        """Return the notifications of all parts."""
        found: dict[str, Route] = {}
        for dispatcher in (self._own, *self._dispatchers()):
            found = {**dispatcher.notices(), **found}
        return found

    def _dispatchers(self) -> list[Dispatcher]:
        return [mount.part.dispatcher for mount in self._mounts.values()]

    def notified(self, notice: Notice, caller: Caller | None) -> None:
        """Hand a notification of a client to the server's own handler and to all parts."""
        for dispatcher in (self._own, *self._dispatchers()):
            dispatcher.notified(notice, caller)

    @property
    def scoped(self) -> bool:
        """Whether anything needs scopes."""
        if self._own.scoped:
            return True
        return any(m.rewrite.scopes or m.part.dispatcher.scoped for m in self._mounts.values())

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return the scopes that a caller needs for what a request names."""
        found = self.index.find(method, name)
        if found is None:
            return self._own.scopes_of(method, name)
        dispatcher = found.mount.part.dispatcher
        return found.scopes | dispatcher.scopes_of(method, found.inner)

    def all_scopes(self) -> frozenset[str]:
        """Return every scope that something needs."""
        scopes = self._own.all_scopes()
        for mount in self._mounts.values():
            added = (each for group in mount.rewrite.scopes.values() for each in group)
            scopes |= mount.part.dispatcher.all_scopes() | frozenset(added)
        return scopes

    def tool(self, name: str) -> Tool | None:
        """Return a tool's definition, if it is known without asking a part."""
        found = self.index.tool(name)
        if found is not None:
            definition: Tool | None = found.definition
            return definition
        return None if self._handler is None else self._handler.tool(name)

    def tasks_of(self, name: str) -> "Tasks | None":
        """Return how a tool runs as a task."""
        found = self.index.tool(name)
        if found is not None:
            return found.mount.part.tasks_of(found.inner)
        return None if self._handler is None else self._handler.tasks_of(name)

    @property
    def tasked(self) -> bool:
        """Whether any tool can run as a task."""
        own = self._handler is not None and self._handler.tasked
        return own or any(mount.part.tasked for mount in self._mounts.values())

    # Calls

    def dispatch(self, call: Call, ctx: Context) -> Answering:
        """Pass a call to the part that it is for."""
        if call.method == "tools/call":
            found = self.index.tools.get(call.params.name)
            if found is not None and found.plain:  # most calls: without another frame
                return found.mount.call_tool(found, call, ctx)
        answer = self._answers.get(call.method)
        return self._other(call, ctx) if answer is None else answer(call, ctx)

    def _call_tool(self, call: Call, ctx: Context) -> Answering:
        params = call.params
        found = self.index.tool(params.name)
        if found is None:
            return self._own.dispatch(call, ctx)
        if found.plain:
            return found.mount.call_tool(found, call, ctx)
        if not found.shown(ctx):
            raise unknown_tool(params.name)
        found.check_scopes(ctx)
        arguments = found.mount.rewrite.arguments(found.inner, params.arguments)
        return found.mount.dispatch(
            call, ctx, replace(params, name=found.inner, arguments=arguments)
        )

    def _get_prompt(self, call: Call, ctx: Context) -> Answering:
        found = self.index.prompt(call.params.name)
        if found is None or not found.shown(ctx):
            return self._own.dispatch(call, ctx)
        found.check_scopes(ctx)
        return found.mount.dispatch(call, ctx, replace(call.params, name=found.inner))

    def _read(self, call: Call, ctx: Context) -> Answering:
        found = self.index.resource(call.params.uri)
        if found is None or not found.shown(ctx):
            return self._own.dispatch(call, ctx)
        found.check_scopes(ctx)
        if found.inner == call.params.uri:
            return found.mount.dispatch(call, ctx, call.params)
        return self._read_spelled(call, ctx, found)

    async def _read_spelled(self, call: Call, ctx: Context, found: Exposed) -> Result | Encoded:
        """Read a resource that its part knows by another URI; the result has the client's URI."""
        uri = call.params.uri
        answer = await found.mount.dispatch(call, ctx, replace(call.params, uri=found.inner))
        if isinstance(answer, Encoded):
            whole = decode(Result, answer.body)
            if whole.result_type not in (None, "complete"):
                return answer
            answer = decode(ReadResourceResult, answer.body)
        if isinstance(answer, ReadResourceResult):
            contents = [
                replace(each, uri=uri) if each.uri == found.inner else each
                for each in answer.contents
            ]
            return replace(answer, contents=contents)
        return answer

    def _subscribe(self, call: Call, ctx: Context) -> Answering:
        uri = call.params.uri
        found = self.index.resource(uri)
        if found is None or not found.shown(ctx):
            return self._own.dispatch(call, ctx)
        found.check_scopes(ctx)
        if found.inner == uri:
            return found.mount.dispatch(call, ctx, call.params)
        peer: Any = SpelledPeer(peer_of(ctx), uri)
        return found.mount.dispatch(call, ctx, replace(call.params, uri=found.inner), peer)

    def _complete(self, call: Call, ctx: Context) -> Answering:
        ref = call.params.ref
        if isinstance(ref, PromptReference):
            found = self.index.prompt(ref.name)
            own = None if found is None else replace(ref, name=found.inner)
        else:
            found = self.index.template(ref.uri) or self.index.resource(ref.uri)
            own = None if found is None else replace(ref, uri=found.inner)
        if found is None or not found.shown(ctx):
            return self._own.dispatch(call, ctx)
        found.check_scopes(ctx)
        return found.mount.dispatch(call, ctx, replace(call.params, ref=own))

    def _list(self, call: Call, ctx: Context) -> Answering:
        return join_lists(self._own, self.index, self._page_size, call, ctx)

    def _other(self, call: Call, ctx: Context) -> Answering:
        """Answer a method of an extension: the server's own, or that of the first part with it."""
        if call.method in self._own.routes() or call.method in REQUESTS:
            return self._own.dispatch(call, ctx)
        for mount in self._mounts.values():
            if call.method in mount.part.dispatcher.routes():
                return mount.dispatch(call, ctx, call.params)
        return self._pass_on(call, ctx)

    async def _pass_on(self, call: Call, ctx: Context) -> Result | Encoded:
        """Return the answer of the first part that knows the method; the others have done nothing."""
        method = call.method
        passing = [mount for mount in self._mounts.values() if mount.part.is_upstream]
        found = self._takers.get(method)
        for mount in sorted(passing, key=lambda each: each.name != found):
            try:
                answer = await mount.dispatch(call, ctx, call.params)
            except McpError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                continue
            if found != mount.name:
                if len(self._takers) >= _MOST_TAKERS:
                    self._takers.clear()
                self._takers[method] = mount.name
            return answer
        raise unknown_method(method)

    async def follow(self, uri: str, ctx: Context) -> None:
        """Ask the part that has a resource whether the caller may follow it."""
        found = self.index.resource(uri)
        if found is None or not found.shown(ctx):
            await self._own.follow(uri, ctx)
            return
        found.check_scopes(ctx)
        peer: Any = None if found.inner == uri else SpelledPeer(peer_of(ctx), uri)
        inner = found.mount.context(ctx, ctx.params, peer)
        await found.mount.until_up()
        await found.mount.part.dispatcher.follow(found.inner, inner)

    async def read_resource(self, uri: str, ctx: Context) -> ReadResourceResult:
        """Read a resource of the server or of a part from inside another call."""
        found = self.index.resource(uri)
        if found is None:
            return await self._own.read_resource(uri, ctx)
        inner = found.mount.context(ctx, ctx.params)
        await found.mount.until_up()
        return await found.mount.part.dispatcher.read_resource(found.inner, inner)


class _AtOnce(Set[str]):
    """The tools of the server and of its parts whose calls return without waiting.

    Names that are looked up while the index is in doubt are not among them.
    """

    def __init__(self, own: Dispatcher, index: Index) -> None:
        self._own = own.at_once
        self._index = index

    def __contains__(self, name: object) -> bool:
        found = self._index.tools.get(name)  # type: ignore[call-overload]
        return name in self._own if found is None else found.at_once

    def __iter__(self) -> Iterator[str]:
        names = (*self._own, *self._index.tools)
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Mirrored(Mapping[str, Mapping[ParameterPath, str]]):
    """The parameters that tools of the server and of its parts mirror into HTTP headers."""

    def __init__(self, own: Dispatcher, index: Index) -> None:
        self._own = own
        self._index = index

    def _found(self, name: str) -> Mapping[ParameterPath, str] | None:
        found = self._index.tool(name)
        if found is None:
            return self._own.mirrored.get(name)
        paths = found.mount.part.dispatcher.mirrored.get(found.inner)
        rewrite = found.mount.rewrite
        if not paths or not rewrite.changes_arguments:
            return paths
        gone = {*rewrite.fix.get(found.inner, ()), *rewrite.drop.get(found.inner, ())}
        return {path: header for path, header in paths.items() if path[0] not in gone} or None

    def __contains__(self, name: object) -> bool:
        known = self._index.tools.get(name)  # type: ignore[call-overload]
        if known is not None and not known.mount.part.dispatcher.mirrored:
            return False  # the part mirrors nothing, as most do
        return isinstance(name, str) and bool(self._found(name))

    def __getitem__(self, name: str) -> Mapping[ParameterPath, str]:
        found = self._found(name)
        if not found:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        names = (*self._own.mirrored, *self._index.tools)
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
