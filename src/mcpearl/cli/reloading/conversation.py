"""What a client on stdio was promised by a server that is replaced while they talk.

`Conversation` looks at the messages of both sides and remembers what the next server has to be told
for the client to notice nothing: the handshake, the log level, subscriptions. It does no I/O.
"""

from typing import Any

import msgspec

from mcpearl.types.base import SUBSCRIPTION_ID_KEY
from mcpearl.types.jsonrpc import INTERNAL_ERROR

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_LISTEN = "subscriptions/listen"
_MOST = 20_000  # of anything that is remembered of one client

# Members of a listen request's filter and of the capabilities, by the notification they are about.
_LISTS = {
    "notifications/tools/list_changed": ("toolsListChanged", "tools"),
    "notifications/prompts/list_changed": ("promptsListChanged", "prompts"),
    "notifications/resources/list_changed": ("resourcesListChanged", "resources"),
}

JsonMessage = dict[str, Any]


class Conversation:
    """One client, and the servers that it takes for one."""

    def __init__(self) -> None:
        self._initialize: JsonMessage | None = None
        self._initialized = False
        self._capabilities: JsonMessage = {}
        self._log_level: JsonMessage | None = None
        self._subscribed: dict[str, JsonMessage] = {}
        self._in_flight: dict[Any, JsonMessage] = {}
        self._asked: set[Any] = set()  # requests of the server that the client has not answered
        self._stale: set[Any] = set()  # those of servers that are gone
        self._parting = False
        self._own = 0
        self._swallowed: set[Any] = set()  # ids of requests that are ours
        self._acknowledged_again: set[Any] = set()

    def from_client(self, line: bytes) -> bool:
        """Take a message of the client; return whether the server should get it."""
        message = _decode(line)
        if message is None:
            return True
        method, id = message.get("method"), message.get("id")
        if method is None:
            return self._answered(id)
        if id is not None:
            if len(self._in_flight) < _MOST:
                self._in_flight[id] = message
        elif method == "notifications/initialized":
            self._initialized = True
        elif method == "notifications/cancelled":
            self._in_flight.pop((message.get("params") or {}).get("requestId"), None)
        return True

    def _answered(self, id: Any) -> bool:
        if id in self._asked:
            self._asked.discard(id)
            return True
        return id not in self._stale

    def from_server(self, line: bytes) -> bool:
        """Take a message of the server; return whether the client should get it."""
        message = _decode(line)
        if message is None:
            return True
        method, id = message.get("method"), message.get("id")
        if method is None:
            if id in self._swallowed:
                self._swallowed.discard(id)
                return False
            if self._parting and self._is_stream(id):
                return False  # a server that stops ends its streams; the next one takes them up
            self._done(id, message)
        elif id is not None:
            if len(self._asked) < _MOST:
                self._asked.add(id)
        elif method == _ACKNOWLEDGED and self._acknowledged_again:
            again = _subscription(message) in self._acknowledged_again
            self._acknowledged_again.discard(_subscription(message))
            return not again
        return True

    def _is_stream(self, id: Any) -> bool:
        return self._in_flight.get(id, {}).get("method") == _LISTEN

    def parting(self) -> None:
        """Note that the server is being stopped."""
        self._parting = True

    def _done(self, id: Any, answer: JsonMessage) -> None:
        """Note what the server agreed to."""
        request = self._in_flight.pop(id, None)
        if request is None or "error" in answer:
            return
        match request.get("method"):
            case "initialize":
                self._initialize = request
                self._capabilities = (answer.get("result") or {}).get("capabilities") or {}
            case "logging/setLevel":
                self._log_level = request
            case "resources/subscribe" if len(self._subscribed) < _MOST:
                self._subscribed[str(_params(request).get("uri"))] = request
            case "resources/unsubscribe":
                self._subscribed.pop(str(_params(request).get("uri")), None)

    def lost(self) -> list[bytes]:
        """Note that the server is gone; return what the client has to hear at once."""
        said = []
        self._parting = False
        for id, request in list(self._in_flight.items()):
            if self._is_stream(id):
                continue
            del self._in_flight[id]
            said.append(_encode({"id": id, "error": _reloaded(request)}))
        for id in self._asked:
            params = {"requestId": id, "reason": "the server was reloaded"}
            said.append(_encode({"method": "notifications/cancelled", "params": params}))
        self._stale = set(list(self._asked | self._stale)[:_MOST])
        self._asked.clear()
        return said

    def opening(self) -> list[bytes]:
        """Return what the next server has to be told first, in order."""
        told = []
        if self._initialize is not None:
            told.append(self._again(self._initialize))
            if self._initialized:
                told.append(_encode({"method": "notifications/initialized"}))
        if self._log_level is not None:
            told.append(self._again(self._log_level))
        told += map(self._again, self._subscribed.values())
        for id, request in self._in_flight.items():  # only streams are left after `lost`
            self._acknowledged_again.add(id)
            told.append(_encode(request))
        return told

    def _again(self, request: JsonMessage) -> bytes:
        self._own += 1
        id = f"mcpearl-reload-{self._own}"
        self._swallowed.add(id)
        return _encode({**request, "id": id})

    def news(self) -> list[bytes]:
        """Return what tells the client that the lists may have changed."""
        told = []
        for method, (wanted, capability) in _LISTS.items():
            announced = self._capabilities.get(capability)
            if self._initialized and isinstance(announced, dict) and announced.get("listChanged"):
                told.append(_encode({"method": method}))
            for id, request in self._in_flight.items():
                filters = _params(request).get("notifications")
                if isinstance(filters, dict) and filters.get(wanted):
                    params = {"_meta": {SUBSCRIPTION_ID_KEY: id}}
                    told.append(_encode({"method": method, "params": params}))
        return told


def _reloaded(request: JsonMessage) -> JsonMessage:
    said = f"The server was reloaded while it answered {request.get('method')}; send it again"
    return {"code": INTERNAL_ERROR, "message": said}


def _params(message: JsonMessage) -> JsonMessage:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _subscription(message: JsonMessage) -> Any:
    meta = _params(message).get("_meta")
    return meta.get(SUBSCRIPTION_ID_KEY) if isinstance(meta, dict) else None


def _decode(line: bytes) -> JsonMessage | None:
    """Return a message; None for what is not one, or is a batch, which is passed on unseen."""
    try:
        message = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), str | int | None):
        return None
    return message


def _encode(message: JsonMessage) -> bytes:
    return msgspec.json.encode({**message, "jsonrpc": "2.0"}) + b"\n"
