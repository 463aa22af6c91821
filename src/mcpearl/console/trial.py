"""The client that one page tries a server with: its requests, and the server's questions.

Whatever the target is, the console holds a `Client` for it, so a page tries a server with the
same code that applications use. Whatever happens there goes to the page as events.
"""

import asyncio
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET

from mcpearl._version import __version__
from mcpearl.client.client import Client
from mcpearl.client.targets import Reachable, ReachOptions, find_target
from mcpearl.console import asking
from mcpearl.console.actions import AnswerQuestion, SendRequest
from mcpearl.console.outbox import PageEvents
from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import USER_REJECTED, LimitReached, McpearlError, McpError
from mcpearl.protocol.events import Notice
from mcpearl.protocol.lifecycle import Phase
from mcpearl.runtime import clock
from mcpearl.transports.tap import Direction, Tap, about
from mcpearl.transports.transport import Transport
from mcpearl.types.base import Implementation, Wire, convert, to_builtins
from mcpearl.types.elicitation import ElicitRequestParams, ElicitResult
from mcpearl.types.logging import LoggingMessageNotificationParams
from mcpearl.types.progress import ProgressNotificationParams
from mcpearl.types.roots import Root
from mcpearl.types.sampling import CreateMessageRequestParams, CreateMessageResult

MAX_ASKS = 64  # requests of one page under way
MAX_QUESTIONS = 64  # questions of a server that wait for a person
MAX_SHOWN = 256 * 1024  # bytes of a message that are shown


class Trial:
    """One page's client of one server.

    Args:
        target: What to connect to.
        name: What the page calls it.
        protocol: The version to speak, or `auto`.
        roots: URIs of the folders the server may work in.
        outbox: Takes what happens.
    """

    def __init__(
        self, target: Reachable, name: str, protocol: str, roots: list[str], outbox: PageEvents
    ) -> None:
        self._name = name
        self._outbox = outbox
        self._roots = roots
        self._tap: Tap | None = None  # of the connection in use
        self._asks: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[int, asyncio.Future[dict[str, Any] | None]] = {}
        self._numbers = count(1)
        found = find_target(target, ReachOptions(on_stderr=self._said))
        self._client = Client(
            found._replace(tap=self._tapped),
            sampling=self._sample,
            elicitation=self._elicit,
            roots=self._list_roots,
            on_log=self._logged,
            on_notification=self._noticed,
            on_state=self._entered,
            protocol=protocol,
            callback_timeout=asking.PATIENCE,
            max_timeout=asking.PATIENCE,
            info=Implementation(name="mcpearl console", version=__version__),
        )
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._client.connect()
        except Exception as error:
            self._outbox.put("state", target=self._name, phase="failed", error=_explained(error))

    async def close(self) -> None:
        """End the connection, and all that waits for it."""
        for task in [self._connecting, *self._asks.values()]:
            task.cancel()
        for waiting in self._questions.values():
            waiting.cancel()
        with suppress(McpearlError, OSError):
            await self._client.close()

    # What the client tells

    def _tapped(self, transport: Transport) -> Tap:
        self._tap = Tap(transport, self._passed)
        return self._tap

    def _passed(self, direction: Direction, message: bytes) -> None:
        text = message[:MAX_SHOWN].decode(errors="replace")
        self._outbox.put_live("message", way=direction, text=text, size=len(message))

    def _said(self, line: str) -> None:
        self._outbox.put_live("stderr", text=line[:4096])

    def _entered(self, phase: Phase) -> None:
        client = self._client
        if phase is not Phase.READY:
            self._outbox.put("state", target=self._name, phase=phase.value)
            return
        info = client.server_info
        self._outbox.put(
            "state",
            target=self._name,
            phase="ready",
            protocol=client.protocol_version,
            era=client.era,
            server=None if info is None else to_builtins(info),
            capabilities=to_builtins(client.server_capabilities),
            instructions=client.instructions,
        )

    def _logged(self, params: LoggingMessageNotificationParams) -> None:
        self._outbox.put_live("notice", method="notifications/message", params=to_builtins(params))

    def _noticed(self, notice: Notice) -> None:
        params = notice.params
        shown = to_builtins(params) if isinstance(params, Wire) else params
        self._outbox.put_live("notice", method=notice.method, params=shown)

    # What the server asks

    async def _list_roots(self) -> list[Root]:
        return [Root(uri=uri) for uri in self._roots]

    async def _elicit(self, params: ElicitRequestParams) -> ElicitResult:
        given = await self._put("elicitation/create", params)
        return ElicitResult(action="decline") if given is None else convert(ElicitResult, given)

    async def _sample(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        given = await self._put("sampling/createMessage", params)
        if given is None:
            raise McpError(USER_REJECTED, "The user refused the sampling request")
        return convert(CreateMessageResult, given)

    async def _put(self, method: str, params: Wire) -> dict[str, Any] | None:
        """Put a question to the person before the page, and wait for the answer."""
        if len(self._questions) >= MAX_QUESTIONS:
            raise LimitReached(f"{MAX_QUESTIONS} questions wait for an answer already")
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        self._outbox.put("question", number=number, method=method, params=to_builtins(params))
        try:
            return await answer
        finally:
            del self._questions[number]
            self._outbox.put("question_over", number=number)

    def answer(self, action: AnswerQuestion) -> None:
        """Answer a question of the server."""
        waiting = self._questions.get(action.question)
        if waiting is None or waiting.done():
            raise ValueError("the server does not wait for this answer any more")
        waiting.set_result(action.result)

    def choose_roots(self, uris: list[str]) -> None:
        """Use other folders from now on, and tell the server."""
        self._roots = uris
        if self._client.state is Phase.READY:
            self._client.notify_roots_changed()

    # What the page asks

    def ask(self, action: SendRequest) -> None:
        """Send a request; the answer goes to the page."""
        if len(self._asks) >= MAX_ASKS:
            raise ValueError(f"{MAX_ASKS} requests are under way; wait, or cancel some")
        if action.id in self._asks:
            raise ValueError(f"there is a request with the id {action.id} already")
        task = asyncio.create_task(self._answered(action))
        self._asks[action.id] = task
        task.add_done_callback(lambda _: self._asks.pop(action.id, None) and None)

    def cancel(self, id: int) -> None:
        """Cancel a request, also at the server."""
        if (task := self._asks.get(id)) is not None:
            task.cancel()

    async def _answered(self, action: SendRequest) -> None:
        def progress(made: ProgressNotificationParams) -> None:
            self._outbox.put_live("progress", id=action.id, **to_builtins(made))

        began = clock.monotonic()  # the time of the loop stands still while it works
        ending: dict[str, Any]
        try:
            ending = {"result": await asking.run(self._client, action, progress)}
        except asyncio.CancelledError:
            ending = {"error": {"message": "Cancelled"}, "cancelled": True}
        except Exception as error:
            ending = {"error": _explained(error)}
        took = clock.monotonic() - began
        self._outbox.put("answer", id=action.id, took=took, **ending)

    def send(self, text: str) -> None:
        """Send a message as a person wrote it; what the server makes of it is shown as it passes."""
        tap, client = self._tap, self._client
        if tap is None or client.state is not Phase.READY:
            raise ValueError("there is no connection to send this on")
        try:
            message = msgspec.json.decode(text)
        except UNREADABLE:
            message = {}  # it is sent all the same: to see what the server makes of it
        message = message if isinstance(message, dict) else {}
        line = " ".join(text.split("\n")).encode()
        tap.send(line, about(message, client.protocol_version, client.era == "modern"))
        tap.flush()


def _explained(error: Exception) -> dict[str, Any]:
    if isinstance(error, McpError):
        return {
            "code": error.code,
            "message": error.message,
            "data": None if error.data is UNSET else error.data,
        }
    if isinstance(error, KeyError):
        return {"message": f"the params have no member {error}"}
    return {"message": str(error) or type(error).__name__, "kind": type(error).__name__}
