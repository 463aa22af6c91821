"""One message on its way to the server: a POST, and its state."""

import asyncio
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from mcpearl.net.http_client.exchange import Header
from mcpearl.net.http_client.http1 import Http1Connection
from mcpearl.transports.http_client.ordering import SendOrder
from mcpearl.transports.mirrored_headers import METHOD, NAME, ToolHeaders, encode_value
from mcpearl.transports.transport import ClientReceiver, Outgoing
from mcpearl.types.methods import NOTIFICATIONS, REQUESTS

NOTICE_TIMEOUT = 30.0  # seconds until a message without an answer counts as not delivered

# What `Mcp-Name` repeats, by method: like `mirrored_headers.NAMED_BY`, for params as structs.
_NAME_OF: dict[str | None, Any] = {
    "tools/call": attrgetter("name"),
    "prompts/get": attrgetter("name"),
    "resources/read": attrgetter("uri"),
    "tasks/get": attrgetter("task_id"),
    "tasks/update": attrgetter("task_id"),
    "tasks/cancel": attrgetter("task_id"),
}
_METHOD_HEADERS = {method: (METHOD, method) for method in (*REQUESTS, *NOTIFICATIONS)}


class PostExchange(Struct, eq=False):
    """One message on its way. The transport that made it owns it; `SendOrder` knows its turn."""

    about: Outgoing
    message: bytes
    receiver: ClientReceiver
    order: SendOrder
    gives_up: "PostExchange | None" = None
    """The request that this message cancels."""
    opens: "asyncio.Future[None] | None" = None
    """Done when the message was delivered, if a session begins with it."""
    task: "asyncio.Task[None] | None" = None
    """The task of a request; None for one that was sent at once, until its answer has to be read."""
    begun: Http1Connection | None = None
    """The connection of such a request."""
    has_left: bool = False
    """Whether the message was handed to the loop."""
    limit: asyncio.Timeout | None = None
    """The time limit of a message without an answer."""

    @property
    def name(self) -> str:
        """The name of the message in the log."""
        return "an answer" if self.about.method is None else f"`{self.about.method}`"

    @property
    def is_request(self) -> bool:
        """Whether the server has to answer."""
        return self.about.method is not None and self.about.id is not None

    @property
    def is_notification(self) -> bool:
        """Whether the message is neither a request nor an answer."""
        return self.about.method is not None and self.about.id is None

    @property
    def starts_session(self) -> bool:
        """Whether everything else of a legacy session has to leave after it."""
        return self.about.method == "notifications/initialized"

    @property
    def named(self) -> str | None:
        """What a message names: a tool, a prompt, a resource, a task."""
        about = self.about
        find = _NAME_OF.get(about.method)
        if find is None or about.params is None:
            return None
        name = find(about.params)
        return name if type(name) is str else None

    def headers(self, tools: ToolHeaders) -> list[Header]:
        """Return the headers that repeat parts of the message."""
        method, params = self.about.method, self.about.params
        if method is None:
            return []
        headers = [_METHOD_HEADERS.get(method) or (METHOD, encode_value(method))]
        name = self.named
        if name is not None:
            headers.append((NAME, encode_value(name)))
            if method == "tools/call" and tools.mirrors(name):
                given = params.arguments
                headers += tools.of(name, {} if given is UNSET else msgspec.json.decode(given))
        return headers

    def sent(self) -> None:
        """Note that the message was handed to the loop."""
        self.has_left = True
        self.order.left(self)

    def held(self, holding: bool) -> None:
        """Suspend the time limit while the message waits for authorization."""
        self.has_left = False
        if self.limit is not None:
            now = asyncio.get_running_loop().time()
            self.limit.reschedule(None if holding else now + NOTICE_TIMEOUT)
        if self.is_request:
            self.receiver.held(self.about.id, holding)
