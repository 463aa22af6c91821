"""Requests to an upstream: which parts of a call are sent, and how its failures reach the caller."""

from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from mcpearl.client.connection import RelayedRequest
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.relay import Relay
from mcpearl.gateway.logs import SharedLogs, level_of
from mcpearl.gateway.presenting import Presentations
from mcpearl.gateway.results import members_of
from mcpearl.gateway.sent import SentRequest
from mcpearl.protocol.errors import (
    ConnectionLost,
    McpearlError,
    McpError,
    RequestTimeout,
    ResourceNotFound,
)
from mcpearl.protocol.events import Call
from mcpearl.protocol.fields import narrow
from mcpearl.runtime.breaker import BreakerOpen
from mcpearl.server.context import Context, call_of
from mcpearl.types.base import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
    RequestParams,
    encode,
)
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcpearl.types.progress import ProgressNotificationParams

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream

_PRESENTED = frozenset(
    {
        PROTOCOL_VERSION_KEY,
        CLIENT_INFO_KEY,
        CLIENT_CAPABILITIES_KEY,
        LOG_LEVEL_KEY,
        PROGRESS_TOKEN_KEY,
    }
)
_LEGACY_NOT_FOUND = -32002


class Sending:
    """Sends requests to one upstream, and reports their outcomes to its circuit breaker.

    Args:
        upstream: The upstream.
    """

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._presentations = Presentations(upstream)
        self.logs = SharedLogs()

    async def send(
        self,
        relay: Relay,
        call: Call,
        params: Any,
        ctx: Context | None,
        on_progress: ProgressCallback | None = None,
        sent: SentRequest | None = None,
    ) -> Raw:
        """Send a request and return its result.

        Args:
            relay: The connection.
            call: The call that the request is made for.
            params: The params, which may differ from those of the call.
            ctx: The context of the call, which gets its progress; None if the call outlives the context.
            on_progress: Called with progress instead.
            sent: Is told what becomes of the request.

        Raises:
            McpError: The request failed, or the circuit breaker is open.
        """
        upstream = self._upstream
        breaker = upstream.breaker
        try:
            breaker.enter()
        except BreakerOpen as error:
            retry_after = round(error.retry_after, 3)
            raise McpError(INTERNAL_ERROR, str(error), {"retryAfter": retry_after}) from None
        if on_progress is None and ctx is not None and call_of(ctx).progress_token is not None:
            on_progress = reporter(ctx)
        try:
            presentation = self._presentations.of(call.caller) if upstream.is_modern else None
            meta = _further(params.meta)
            body = self._body(call, params)
            began = None if sent is None else sent.began
            raw = await relay.request(
                RelayedRequest(call.method, params, body, on_progress, presentation, meta, began)
            )
        except McpError as error:
            breaker.worked()
            if sent is not None:
                sent.answered = True
            if call.method == "resources/read" and _is_not_found(error):
                raise ResourceNotFound(params.uri) from None
            raise
        except (ConnectionLost, RequestTimeout) as error:
            breaker.failed(error)
            raise self.failed(error) from None
        except McpearlError as error:
            breaker.worked()
            raise self.failed(error) from None
        except BaseException:
            breaker.undecided()
            raise
        breaker.worked()
        if sent is not None:
            sent.answered = True
        return raw

    async def send_shared(self, relay: Relay, call: Call, params: Any, ctx: Context) -> Raw:
        """Send a request on the connection that clients share; pass on log messages its client wants.

        Args:
            relay: The connection.
            call: The call that the request is made for.
            params: The params, which may differ from those of the call.
            ctx: The context of the call.
        """
        level, modern = level_of(call.caller), self._upstream.is_modern
        if level is None and modern:
            return await self.send(relay, call, params, ctx)  # nothing is logged about it
        if level is not None and not modern and self.logs.lower(level):
            await self._upstream.set_level(await self._upstream.shared(), level)
        logged = self.logs.enter(call, ctx)
        try:
            return await self.send(relay, call, params, ctx, sent=logged)
        finally:
            self.logs.leave(logged)

    def _body(self, call: Call, params: Any) -> bytes:
        """Return encoded params without `_meta`, which the relay adds."""
        if type(params) is not RequestParams:
            return encode(narrow(replace(params, meta=None), self._upstream.version))
        members = members_of(call.raw)  # of an extension: only the upstream knows them
        members.pop("_meta", None)
        return encode(members)

    def failed(self, error: McpearlError) -> McpError:
        """Return the error that the caller gets for a failure.

        Args:
            error: The failure.
        """
        name = self._upstream.name
        data: dict[str, Any] = {"server": name}
        if isinstance(error, ConnectionLost):
            data["mayHaveRun"] = error.maybe_executed
            text = "; the call may have run" if error.maybe_executed else ""
            return McpError(INTERNAL_ERROR, f"`{name}`: {error.reason}{text}", data)
        return McpError(INTERNAL_ERROR, f"`{name}`: {error}", data)


def reporter(ctx: Context) -> ProgressCallback:
    """Return a callback that passes an upstream's progress on to the client of a call.

    Args:
        ctx: The context of the call.
    """

    async def report(params: ProgressNotificationParams) -> None:
        await ctx.progress(params.progress, params.total, params.message)

    return report


def _is_not_found(error: McpError) -> bool:
    """Whether an error says that there is no such resource, in the form of either era."""
    if error.code == _LEGACY_NOT_FOUND:
        return True
    return error.code == INVALID_PARAMS and isinstance(error.data, dict) and "uri" in error.data


def _further(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the members of a caller's `_meta` that do not describe the caller, such as trace context."""
    if not meta or meta.keys() <= _PRESENTED:
        return None
    return {key: value for key, value in meta.items() if key not in _PRESENTED}
