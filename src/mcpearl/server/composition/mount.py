"""One part of a server under its name: its lifetime, its names for clients, and its calls."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from mcpearl.protocol.errors import InsufficientScope, McpError, brief
from mcpearl.protocol.events import Call, Encoded
from mcpearl.server.composition.context import PartContext
from mcpearl.server.composition.part import Part
from mcpearl.server.composition.rewrite import UNCHANGED, EntryKind, Offered, Rewrite
from mcpearl.server.context import Context, call_of, take_up_round
from mcpearl.server.dispatch import Answering, Dispatch
from mcpearl.server.failures import only_error
from mcpearl.server.peer import Peer
from mcpearl.stores.bus import Bus
from mcpearl.types.base import Result, encode
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore
else:
    ServerCore = Any

logger = logging.getLogger("mcpearl.server")
KINDS: tuple[EntryKind, ...] = ("tools", "prompts", "resources", "templates")
MAX_LEARNED = 10_000
"""Entries of one kind that are remembered of a part without a catalog."""


class Exposed(Struct, eq=False):
    """Something a part offers, under the name clients know it by."""

    mount: "Mount"
    kind: EntryKind
    inner: str
    """The name, or the URI of a resource, at the part."""
    outer: str
    source: Any = None
    """The part's definition; None where only its name is known."""
    definition: Any = None
    """The definition that clients get."""
    scopes: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    plain: bool = True
    """Whether a call needs no check of scopes, visibility or arguments."""
    answer: Dispatch | None = None
    """Runs the tool, where the part does nothing else with its calls."""
    at_once: bool = False
    """Whether that returns without waiting, once the part is up."""

    def visible(self, ctx: Context) -> bool:
        """Whether the caller is offered this."""
        if self.plain:
            return True
        if self.scopes and not ctx.may_use(self.scopes):
            return False
        return self.shown(ctx)

    def shown(self, ctx: Context) -> bool:
        """Whether `Rewrite.shown` lets the caller see this."""
        shown = self.mount.rewrite.shown
        offered = Offered(self.kind, self.inner, self.tags, self.definition)
        return shown is None or bool(shown(offered, ctx))

    def check_scopes(self, ctx: Context) -> None:
        """Raise `InsufficientScope` if the caller lacks scopes that the mount asks for."""
        if self.scopes and not ctx.may_use(self.scopes):
            what = {"tools": "Tool", "prompts": "Prompt"}.get(self.kind, "Resource")
            raise InsufficientScope(what, self.outer, self.scopes)


class Mount:
    """A part of a server. Made by `Server.mount`.

    >>> mount = app.mount("weather", weather)
    >>> mount.rewrite = Rewrite(hide=["admin_*"])

    Args:
        name: Its name in the server.
        number: Its place in lists; they only grow.
        part: What is mounted.
        core: What the connections of the outer server share.
        rewrite: Changes to what it offers.
        prefix: Whether the names of its tools and prompts begin with its own.
        changed: Called with the kind of list that changed.
        updated: Called with the URI of a resource that changed.
        reentered: Called when something else than before answers the part's calls.
        bus: Returns what connects the processes of the outer server.
    """

    def __init__(
        self,
        name: str,
        number: int,
        part: Part,
        core: "ServerCore",
        rewrite: Rewrite,
        prefix: bool,
        changed: Callable[[str], None],
        updated: Callable[[str], None],
        reentered: Callable[[], None],
        bus: Callable[[], Bus],
    ) -> None:
        self.name = name
        self.number = number
        self.part = part
        self.prefix = prefix
        self.calls = 0  # in flight
        self.learned: dict[EntryKind, dict[str, Any]] = {kind: {} for kind in KINDS}
        self._core = core
        self._inner_core = part.core(core)  # of contexts inside the part
        self._entrance = part.entrance
        self._bus = bus
        self._rewrite = rewrite
        self._changed = changed
        self._updated = updated
        self._reentered = reentered
        self._starting: asyncio.Future[None] | None = (
            None  # while the part is not up, or has failed
        )
        self._reason = ""  # why it is not up, when that future has an error
        self._keeper: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._quiet = asyncio.Event()
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"<Mount {self.name!r}>"

    @property
    def bus(self) -> Bus:
        """What connects the processes of the outer server."""
        return self._bus()

    @property
    def core(self) -> ServerCore:
        """What the connections of the outer server share."""
        return self._core

    # What is changed of it

    @property
    def rewrite(self) -> Rewrite:
        """Changes to what the part offers. Set it to replace them at run time; clients are notified."""
        return self._rewrite

    @rewrite.setter
    def rewrite(self, rewrite: Rewrite | None) -> None:
        self._rewrite = rewrite or UNCHANGED
        for kind in ("tools", "prompts", "resources"):
            self.list_changed(kind)

    def expose(self, kind: EntryKind, inner: str, outer: str, source: Any) -> Exposed | None:
        """Return an entry of the part as clients see it; None if it is hidden from all.

        Args:
            kind: `tools`, `prompts`, `resources` or `templates`.
            inner: The name, or URI, at the part.
            outer: The name, or URI, for clients.
            source: Its definition there; None if only the name is known.
        """
        rewrite = self._rewrite
        if rewrite is UNCHANGED:
            definition = None if source is None else rewrite.applied(inner, outer, source)
            return Exposed(self, kind, inner, outer, source, definition)
        tags = frozenset[str]() if source is None else rewrite.tags_of(inner, source)
        if rewrite.hides(inner, tags):
            return None
        scopes = rewrite.scopes_of(inner)
        plain = (
            not scopes
            and rewrite.shown is None
            and inner not in rewrite.fix
            and inner not in rewrite.drop
        )
        definition = None if source is None else rewrite.applied(inner, outer, source)
        return Exposed(self, kind, inner, outer, source, definition, scopes, tags, plain)

    def warn_of_unknown(self, names: Iterable[str]) -> None:
        """Log names in the rewrite that the part does not have, once each.

        Args:
            names: The names and URIs the part has.
        """
        for name in self._rewrite.unknown(names):
            if name not in self._warned:
                self._warned.add(name)
                logger.warning(
                    "the rewrite of `%s` names %r, which it does not offer", self.name, name
                )

    def learn(self, kind: EntryKind, inner: str, source: Any) -> bool:
        """Remember an entry of a part without a catalog; return whether it is new.

        Args:
            kind: `tools`, `prompts`, `resources` or `templates`.
            inner: The name, or URI, at the part.
            source: Its definition there.
        """
        known = self.learned[kind]
        before = known.get(inner)
        if before is None and len(known) >= MAX_LEARNED:
            known.pop(next(iter(known)))
        known[inner] = source
        return before is None or before != source

    # Changes in the part

    def list_changed(self, kind: str) -> None:
        """Note that the part's lists changed.

        Args:
            kind: `tools`, `prompts` or `resources`.
        """
        self._changed(kind)

    def entrance_changed(self) -> None:
        """Note that something else than before answers the part's calls."""
        self._reentered()

    def resource_updated(self, uri: str) -> None:
        """Notify subscribers, under both spellings of the URI.

        Args:
            uri: The resource's URI at the part.
        """
        self._updated(uri)
        self._updated(f"{self.name}+{uri}")

    def is_followed(self, uri: str) -> bool:
        """Whether a client is subscribed to a resource of the part.

        Args:
            uri: The resource's URI at the part.
        """
        subscriptions = self._core.subscriptions
        if any(subscriptions.has(each) for each in (uri, f"{self.name}+{uri}")):
            return True
        return any(outer.is_followed(uri) for outer in self._core.enclosing)

    def failed(self, error: BaseException) -> None:
        """Refuse calls from now on: the part's lifespan ended by itself while it was running.

        Args:
            error: Why.
        """
        if self._keeper is None or self._starting is not None:
            return  # it is not running here, or its start fails
        logger.error(
            "the lifespan of `%s` failed; its calls are refused", self.name, exc_info=error
        )
        self._refuse("its lifespan failed", asyncio.get_running_loop().create_future(), error)
        self._leave.set()
        for kind in ("tools", "prompts", "resources"):
            self.list_changed(kind)

    # Its life

    def start(self) -> "asyncio.Future[None]":
        """Start the part; the future is done when it is up. Calls wait for that."""
        loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        self._starting = starting = loop.create_future()
        self._keeper = loop.create_task(self._keep(starting))
        return starting

    async def _keep(self, starting: "asyncio.Future[None]") -> None:
        try:
            async with self.part.running():
                self._starting = None
                if not starting.done():
                    starting.set_result(None)
                await self._leave.wait()
                if (
                    self._starting is None
                ):  # else it has failed: calls in flight have nothing to rely on
                    await self._settle()
        except Exception as error:
            if not starting.done():
                logger.error("`%s` cannot be started: %s", self.name, error)
                self._refuse("it could not be started", starting, error)
            elif self._starting is None:
                logger.error(
                    "the mounted server `%s` failed while it was stopped", self.name, exc_info=error
                )

    def _refuse(self, reason: str, up: "asyncio.Future[None]", error: BaseException) -> None:
        """Let calls that wait for the part, and all that come later, fail."""
        self._reason, self._starting = reason, up
        up.set_exception(error)
        up.exception()  # marks it as retrieved: there may be no waiter

    async def _settle(self) -> None:
        """Let calls in flight finish within the grace period."""
        self._quiet.clear()
        if self.calls:
            try:
                async with asyncio.timeout(self._core.grace):
                    await self._quiet.wait()
            except TimeoutError:
                logger.warning("`%s` is unmounted with %d calls in flight", self.name, self.calls)

    async def stop(self) -> None:
        """Stop the part, once its calls have finished or the grace period is over."""
        keeper, self._keeper = self._keeper, None
        self._leave.set()
        if keeper is not None:
            await asyncio.wait((keeper,))

    # Calls

    def answer_of(self, name: str) -> Dispatch | None:
        """Return what answers calls of a tool, if the part does nothing else with them.

        Args:
            name: The tool's name at the part.
        """
        run = self.part.tool_function(name)
        if run is None:
            return None
        core = self._inner_core

        def answer(call: Call, ctx: Context) -> Answering:
            params, inner = call.params, PartContext(ctx, core, None, name)
            if params.request_state is not None:
                take_up_round(inner)
            return run(params.arguments, inner)

        return answer

    def call_tool(self, tool: Exposed, call: Call, ctx: Context) -> Answering:
        """Let the part answer a call of one of its tools, which needs no checks.

        Args:
            tool: The tool, as clients see it.
            call: The call as the outer server has it.
            ctx: Its context there.
        """
        if tool.answer is None or self._starting is not None:  # it may change until it is up
            return self.dispatch(call, ctx, replace(call.params, name=tool.inner))
        return self._run(tool.answer, call, ctx)

    def dispatch(
        self, call: Call, ctx: Context, params: Any, peer: Peer | None = None
    ) -> Answering:
        """Let the part answer a call, with params that have its own names.

        Args:
            call: The call as the outer server has it.
            ctx: Its context there.
            params: The params with the part's names.
            peer: The other end of the call, where it is another.
        """
        return self._run(partial(self._enter, params=params, peer=peer), call, ctx)

    def _enter(self, call: Call, ctx: Context, *, params: Any, peer: Peer | None) -> Answering:
        """Pass a call to what is in front of the part: its middleware and limits."""
        part = self.part
        inner = Call(call.id, call.method, params, call.raw, call.caller, call.progress_token)
        inner.run = call_of(ctx).run  # the outer server runs tasks
        if part.reads_raw and params is not call.params:
            inner.raw = encode(params)
        if not part.is_upstream or peer is not None:  # an upstream has no handlers of its own
            ctx = self.context(ctx, params, peer)
        return self._entrance.dispatch(inner, ctx)

    async def _run(self, answer: Dispatch, call: Call, ctx: Context) -> Result | Encoded:
        """Answer a call once the part is up; it is in flight until then."""
        if self._starting is not None:
            await self.until_up()
        self.calls += 1
        try:
            return await answer(call, ctx)
        finally:
            self.calls -= 1
            if not self.calls and self._keeper is None:
                self._quiet.set()

    def context(self, ctx: Context, params: Any, peer: Peer | None = None) -> PartContext:
        """Return the context of a call inside the part.

        Args:
            ctx: The context in the outer server.
            params: The params with the part's names.
            peer: The other end of the call, where it is another.
        """
        return PartContext(ctx, self._inner_core, params, peer=peer)

    async def until_up(self) -> None:
        """Wait until the part has started. Raises `McpError` if it could not, or has failed since."""
        if self._starting is None:
            return
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            raise
        except Exception as found:
            said = f"`{self.name}` is not there: {self._reason}"
            if not (self._core.mask_errors or self._inner_core.mask_errors):
                error = only_error(found)
                said += f": {brief(str(error) or type(error).__name__, 500)}"
            raise McpError(INTERNAL_ERROR, said) from None
