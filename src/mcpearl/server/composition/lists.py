"""The lists of a server and its parts as one list, page by page.

A page is filled from one part after the other, so that many parts with few entries fit on one page. If a
part cannot list, only its entries are missing; `_meta` of the result names the part.
"""

import logging
from typing import Any, NamedTuple

from msgspec.structs import replace

from mcpearl.protocol.errors import McpearlError, McpError, brief
from mcpearl.protocol.events import Call, Encoded
from mcpearl.server.composition.index import Index
from mcpearl.server.composition.mount import Mount
from mcpearl.server.composition.rewrite import EntryKind
from mcpearl.server.context import Context
from mcpearl.server.dispatch import Dispatcher
from mcpearl.types.base import decode
from mcpearl.types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from mcpearl.types.pages import PaginatedResult
from mcpearl.types.prompts import ListPromptsResult
from mcpearl.types.resources import ListResourcesResult, ListResourceTemplatesResult
from mcpearl.types.tools import ListToolsResult

logger = logging.getLogger("mcpearl.server")
UNAVAILABLE_KEY = "mcpearl/unavailable"
"""In `_meta` of a list: the parts whose entries are missing, and why."""


class _List(NamedTuple):
    kind: EntryKind
    result: type[Any]
    member: str
    """The member of the result with the entries."""
    key: str
    """The member that identifies an entry."""
    capability: str


LISTS: dict[str, _List] = {
    "tools/list": _List("tools", ListToolsResult, "tools", "name", "tools"),
    "prompts/list": _List("prompts", ListPromptsResult, "prompts", "name", "prompts"),
    "resources/list": _List("resources", ListResourcesResult, "resources", "uri", "resources"),
    "resources/templates/list": _List(
        "templates",
        ListResourceTemplatesResult,
        "resource_templates",
        "uri_template",
        "resources",
    ),
}


class _Joining:
    """One page that is being filled."""

    def __init__(self, listed: _List, own: Dispatcher, index: Index, call: Call, ctx: Context):
        self.entries: list[Any] = []
        self.missing: dict[str, str] = {}
        self._listed = listed
        self._own = own
        self._index = index
        self._call = call
        self._ctx = ctx
        self._ttl: int | None = None
        self._scope: Any = "public"
        self._hints = True  # whether every page had caching hints

    async def take(self, mount: Mount | None, cursor: str | None) -> str | None:
        """Add a page of the server itself (None) or of a part; return the cursor of its next."""
        page = await self._page(mount, cursor)
        if page is None:
            return None
        found = getattr(page, self._listed.member)
        if mount is not None:
            found = self._shown(mount, found)
        self.entries += found
        self._note_hints(page)
        following: str | None = page.next_cursor
        return following

    async def _page(self, mount: Mount | None, cursor: str | None) -> Any:
        params = replace(self._call.params, cursor=cursor)
        call = self._call
        try:
            if mount is None:
                inner = Call(call.id, call.method, params, b"{}", call.caller, call.progress_token)
                answer = await self._own.dispatch(inner, self._ctx)
            elif getattr(mount.part.dispatcher.capabilities(), self._listed.capability) is None:
                return None
            else:
                answer = await mount.dispatch(call, self._ctx, params)
            if isinstance(answer, Encoded):
                answer = decode(self._listed.result, answer.body)
        except McpError as error:
            if error.code == METHOD_NOT_FOUND:
                return None
            if mount is None or (cursor is not None and error.code == INVALID_PARAMS):
                raise
            return self._miss(mount, error)
        except (McpearlError, OSError) as error:
            if mount is None:
                raise
            return self._miss(mount, error)
        except Exception as error:
            if mount is None:
                raise
            logger.error("`%s` cannot list its %s", mount.name, self._listed.kind, exc_info=error)
            return self._miss(mount, error)
        return answer

    def _miss(self, mount: Mount, error: Exception) -> None:
        self.missing[mount.name] = brief(str(error) or type(error).__name__, 500)
        self._hints = False

    def _shown(self, mount: Mount, found: list[Any]) -> list[Any]:
        listed, index, ctx = self._listed, self._index, self._ctx
        entries = (index.exposed(mount, listed.kind, getattr(e, listed.key), e) for e in found)
        return [e.definition for e in entries if e is not None and e.visible(ctx)]

    def _note_hints(self, page: PaginatedResult) -> None:
        if page.ttl_ms is None:
            self._hints = False
            return
        self._ttl = page.ttl_ms if self._ttl is None else min(self._ttl, page.ttl_ms)
        if page.cache_scope != "public":
            self._scope = "private"

    def result(self, cursor: str | None) -> PaginatedResult:
        """Return the page."""
        made: PaginatedResult = self._listed.result(
            **{self._listed.member: self.entries}, next_cursor=cursor
        )
        if self._hints and self._ttl is not None:
            made.ttl_ms, made.cache_scope = self._ttl, self._scope
        if self.missing:
            made.meta = {UNAVAILABLE_KEY: self.missing}
        return made


async def join_lists(
    own: Dispatcher, index: Index, page_size: int, call: Call, ctx: Context
) -> PaginatedResult:
    """Return one page of the joint list."""
    number, cursor = _read_cursor(call.params.cursor)
    sources: list[tuple[int, Mount | None]] = [(0, None)]
    sources += [(mount.number, mount) for mount in index.mounts]
    joining = _Joining(LISTS[call.method], own, index, call, ctx)
    for each, mount in sources:
        if each < number:
            continue
        if len(joining.entries) >= page_size:
            return joining.result(f"{each}.")
        following = cursor if each == number and cursor else None
        while True:
            following = await joining.take(mount, following)
            if following is None:
                break
            if len(joining.entries) >= page_size:
                return joining.result(f"{each}.{following}")
    return joining.result(None)


def _read_cursor(cursor: str | None) -> tuple[int, str | None]:
    """Return the number of the part a cursor is in, and the cursor there."""
    if cursor is None:
        return 0, None
    number, dot, inner = cursor.partition(".")
    if not dot or not number.isascii() or not number.isdigit() or len(number) > 12:
        raise McpError(
            INVALID_PARAMS,
            "This cursor does not come from a list of this server",
            {"cursor": brief(cursor, 64)},
        )
    return int(number), inner or None
