"""The connection of a process to Redis or Valkey, which all of its stores share.

Commands of one turn of the event loop are sent together, and while their replies are awaited the next
ones queue up. So commands arrive in the order they were made, and many cost little more than one. A
command is never repeated here, since it may have been carried out although its reply was lost.

When the server cannot be reached, commands fail at once with `StoreUnavailable` until the next attempt
is due. Deployment-wide keys share one hash tag, so that a script may use several of them in a cluster;
those of a session have a tag of their own.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any

from mcpearl.runtime.backoff import Backoff, Retries, doubling
from mcpearl.stores.errors import StoreUnavailable, Unreadable
from mcpearl.stores.redis_address import RedisAddress
from mcpearl.stores.redis_checks import check_server
from mcpearl.stores.redis_script import Script

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

logger = logging.getLogger("mcpearl.stores")

Argument = str | bytes | int | float
Command = tuple[Argument, ...]

RECONNECTS = Backoff(delays=doubling(0.1, 5.0))
"""Delays before attempts to reach a server that is away."""
TIMEOUT = 5.0  # seconds a reply may take
MAX_WAITING = 100_000  # commands that may wait to be sent
_REFUSED_DELAY = 0.5  # seconds until a step that the server refused is tried again
_STEADY = 10.0  # least seconds between two failures of the watch
_AT_ONCE = 1000  # most commands that are sent together
_DENIED = (
    "Authentication",
    "username-password",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "InvalidResponse",
    "unexpected keyword argument",  # an option of the address that redis-py does not have
)


class RedisLink:
    """The connection of one process.

    Args:
        address: Where the server is.
        prefix: The beginning of every key, unless the address has one.
    """

    def __init__(self, address: RedisAddress, prefix: str = "mcpearl") -> None:
        self.address = address
        self.prefix = (address.prefix or prefix).replace("{", "(").replace("}", ")")
        self._holders = 0
        self._client: Redis | RedisCluster | None = None
        self._queue: list[tuple[asyncio.Future[Any], Command]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._retries = Retries(RECONNECTS)
        self._error = ""  # why the server could not be reached last time
        self._again_at = 0.0  # when the next attempt may be made, in the loop's time
        self._down: asyncio.Event | None = None  # set when the server is lost
        self._up: asyncio.Event | None = None  # set while the server can be reached
        self._lost_at = -_STEADY  # when the watch last failed, in the loop's time
        self._loaded: set[str] = set()  # scripts the server knows
        self._denied = False  # the server was reached, but denied access
        self._introduction: Callable[[], Command] | None = None
        self._introduced = False
        self.checked = False
        self.sent = 0
        """Commands sent since the start."""

    # Keys

    def key(self, *parts: str) -> str:
        """Return a key of the whole deployment."""
        return f"{{{self.prefix}}}:{':'.join(parts)}"

    def key_of(self, owner: str, *parts: str) -> str:
        """Return a key of one owner, such as a session; all keys of an owner are on one node."""
        return f"{self.prefix}:{{{owner}}}:{':'.join(parts)}"

    # Life

    async def start(self) -> None:
        """Connect, and check that the server can be used. A server that cannot be reached may come later.

        The stores of a process share the link: it is closed when all that started it have closed it.

        Raises:
            StoreUnavailable: The server was reached but cannot be used; the text says why.
        """
        self._holders += 1
        if self._client is not None:
            return
        try:
            self._client = self.address.client(None)
        except ImportError:
            self._holders -= 1
            raise StoreUnavailable(
                "the store needs the package `redis`; install `mcpearl[redis]`"
            ) from None
        except (TypeError, ValueError) as error:
            self._holders -= 1
            raise StoreUnavailable(f"{self.address.shown} cannot be used: {error}") from None
        self._up = asyncio.Event()
        try:
            await self.check()
        except StoreUnavailable as error:
            if self.is_up or self._denied:
                await self.close()
                raise
            logger.error("%s; what needs the store is refused until it can be reached", error)

    async def check(self) -> None:
        """Check that the server can be used."""
        await check_server(self)
        self.checked = True

    async def close(self) -> None:
        """Send waiting commands and disconnect, unless another store of the process uses the link."""
        self._holders -= 1
        if self._holders > 0 or self._client is None:
            return
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        client, self._client = self._client, None
        self._down = None
        self.checked = False
        await self.address.disconnect(client)

    @property
    def is_up(self) -> bool:
        """Whether the server answered when it was last asked."""
        return self._up is not None and self._up.is_set()

    def reader(self, patience: float) -> "Redis | RedisCluster":
        """Return a separate client for reads that block.

        Args:
            patience: Seconds such a read may block.
        """
        return self.address.client(patience + TIMEOUT)

    async def watch(self) -> None:
        """Run while the server can be reached; fail when it is lost, for the supervisor to see."""
        loop = asyncio.get_running_loop()
        if self._down is None:
            self._down = asyncio.Event()
        # A server that comes and goes is not a reason to give up, however often it does.
        await asyncio.sleep(max(0.0, self._lost_at + _STEADY - loop.time()))
        await self.until_up()
        if not self.checked:
            await self.check()
        self._down.clear()
        while self.is_up:
            await self._down.wait()
        self._lost_at = loop.time()
        raise self._away()

    async def until_up(self) -> None:
        """Wait until the server can be reached, trying it again and again."""
        while not self.is_up:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._again_at - loop.time()))
            try:
                await self.send("PING")
            except StoreUnavailable:
                continue

    async def until_usable(self) -> None:
        """Wait after a step failed, until it may be tried again.

        A server that can be reached has refused the step. It may do so again, for example while it has no
        memory left.
        """
        if self.is_up:
            await asyncio.sleep(_REFUSED_DELAY)
        await self.until_up()

    # Commands

    def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument] = ()
    ) -> "asyncio.Future[Any]":
        """Run a script; the future has its reply, or `StoreUnavailable`."""
        return self._enqueue(self.calling(script, keys, arguments))

    def introduce(self, introduction: "Callable[[], Command] | None") -> None:
        """Send a command before all others, now and each time the server is reached anew.

        Args:
            introduction: Returns the command; None ends this.
        """
        self._introduction, self._introduced = introduction, False

    def calling(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument] = ()
    ) -> Command:
        """Return the command that runs a script."""
        if script.digest not in _SCRIPTS:
            _SCRIPTS[script.digest] = script
        return ("EVALSHA", script.digest, len(keys), *keys, *arguments)

    def send(self, *command: Argument) -> "asyncio.Future[Any]":
        """Send a command; the future has its reply, or `StoreUnavailable`."""
        return self._enqueue(command)

    def post(self, future: "asyncio.Future[Any]", what: str) -> None:
        """Do not wait for a command; log a failure of it."""

        def done(future: "asyncio.Future[Any]") -> None:
            if not future.cancelled() and future.exception() is not None:
                logger.warning("%s: %s", what, future.exception())

        future.add_done_callback(done)

    def _enqueue(self, command: Command) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._client is None:
            future.set_exception(StoreUnavailable("the store is closed"))
        elif self._again_at and self._again_at > loop.time():
            future.set_exception(self._away())
        elif len(self._queue) >= MAX_WAITING:
            future.set_exception(
                StoreUnavailable(f"{MAX_WAITING} commands wait for {self.address.shown} already")
            )
        else:
            self._queue.append((future, command))
            if self._flushing is None:
                self._flushing = loop.create_task(self._flush())
        return future

    async def _flush(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue[:_AT_ONCE], self._queue[_AT_ONCE:]
                await self._exchange(batch)
        finally:
            self._flushing = None

    async def _exchange(self, batch: list[tuple["asyncio.Future[Any]", Command]]) -> None:
        introduced: asyncio.Future[Any] | None = None
        if self._introduction is not None and not self._introduced:
            introduced = asyncio.get_running_loop().create_future()
            introduced.add_done_callback(asyncio.Future.exception)  # it is tried again
            batch = [(introduced, self._introduction()), *batch]
        try:
            await self._load(command for _, command in batch)
            replies = await self._replies([command for _, command in batch])
            failed = [n for n, reply in enumerate(replies) if isinstance(reply, Exception)]
            unknown = [n for n in failed if _is_unknown_script(replies[n])]
            if unknown:  # another server has taken over, or an operator flushed the scripts
                self._loaded.clear()
                again = await self._replies([_whole(batch[n][1]) for n in unknown])
                for number, reply in zip(unknown, again, strict=True):
                    replies[number] = reply
        except asyncio.CancelledError:
            self._fail(batch, StoreUnavailable("the store was closed"))
            raise
        except Exception as error:
            self._lost(error)
            if (
                type(error).__name__ == "TimeoutError"
            ):  # what came meanwhile does not wait as long again
                batch, self._queue = batch + self._queue, []
            self._fail(batch, self._away())
            return
        self._reached()
        for (future, _), reply in zip(batch, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(self._refused(reply))
            else:
                future.set_result(reply)
        self._introduced = self._introduced or introduced is not None

    async def _load(self, commands: Iterable[Command]) -> None:
        """Load the scripts that the server does not know yet, before the commands that run them."""
        named = {command[1] for command in commands if command[0] == "EVALSHA"}
        for digest in map(str, named - self._loaded):
            assert self._client is not None
            async with asyncio.timeout(TIMEOUT):
                await self._client.script_load(_SCRIPTS[digest].text)
            self._loaded.add(digest)

    async def _replies(self, commands: list[Command]) -> list[Any]:
        assert self._client is not None
        self.sent += len(commands)
        async with asyncio.timeout(TIMEOUT):
            if self.address.kind != "cluster":
                return await exchanged(self._client, commands)
            async with self._client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = await pipeline.execute(raise_on_error=False)
            return replies

    @staticmethod
    def _fail(batch: list[tuple["asyncio.Future[Any]", Command]], error: Exception) -> None:
        for future, _ in batch:
            if not future.done():
                future.set_exception(error)

    # The state of the server

    def _reached(self) -> None:
        if self._up is not None and not self._up.is_set():
            if self._error:
                logger.info("%s can be reached again", self.address.shown)
            self._error = ""
            self._again_at = 0.0
            self._retries.start_over()
            self._up.set()

    def _lost(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        said = f"{type(error).__name__}: {text}"
        self._denied = any(word in said for word in _DENIED)
        self._loaded.clear()
        self._introduced = False
        if self._up is not None and (self._up.is_set() or not self._error):
            logger.error("%s cannot be reached: %s", self.address.shown, text)
            self._up.clear()
            if self._down is not None:
                self._down.set()
        self._error = text
        self._again_at = asyncio.get_running_loop().time() + self._retries.next_delay()

    def _away(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.address.shown} cannot be reached: {self._error}")

    def _refused(self, error: Exception) -> StoreUnavailable:
        text = str(error) or type(error).__name__
        kind = type(error).__name__
        if kind in ("ReadOnlyError", "MasterDownError") or text.startswith("READONLY"):
            # This server is no longer the master: the next connection goes to the new one.
            pool = getattr(self._client, "connection_pool", None)
            if pool is not None:
                asyncio.get_running_loop().create_task(pool.disconnect())
        what = Unreadable if "WRONGTYPE" in text else StoreUnavailable
        refused = what(f"{self.address.shown} refused a step: {text}")
        logger.warning("%s", refused)
        return refused


async def exchanged(client: Any, commands: list[Command]) -> list[Any]:
    """Send commands together, and return their replies; an error reply is returned, not raised.

    A pipeline of redis-py does the same in Python, at three times the cost.
    """
    from hiredis import pack_command

    pool = client.connection_pool
    connection = await pool.get_connection()
    replies: list[Any] = []
    try:
        packed = [pack_command(command) for command in commands]  # type: ignore[arg-type]
        await connection.send_packed_command(packed, check_health=False)
        await _read_replies(connection, len(commands), replies)
    finally:
        if len(replies) < len(commands):
            # Replies still outstanding must not be taken for those of the next commands.
            await connection.disconnect(nowait=True)
        await pool.release(connection)
    return replies


async def _read_replies(connection: Any, count: int, replies: list[Any]) -> None:
    """Read replies into a list.

    Most arrive together. redis-py waits for one, and the others are taken from its parser, since its
    coroutines for each reply cost more than the reply. Where redis-py has another parser, it waits for
    each.
    """
    from redis.exceptions import ResponseError

    parser = getattr(connection, "_parser", None)
    parse = getattr(getattr(parser, "_reader", None), "gets", None)
    while len(replies) < count:
        try:
            replies.append(await connection.read_response())
        except ResponseError as error:
            replies.append(error)
        while parse is not None and len(replies) < count:
            reply = parse()
            if type(reply) in _VALUES or isinstance(reply, ResponseError):
                replies.append(reply)
            elif isinstance(reply, Exception):
                raise reply
            elif isinstance(reply, list):  # not a reply: the server tells something on its own
                await parser.handle_push_response(reply)  # type: ignore[union-attr]
            else:
                break  # the next reply has not arrived yet


_VALUES = frozenset((bytes, int, NoneType, list, float, bool, dict, set, str))
_SCRIPTS: dict[str, Script] = {}  # scripts that were run, by digest


def _is_unknown_script(reply: Exception) -> bool:
    return type(reply).__name__ == "NoScriptError"


def _whole(command: Command) -> Command:
    """Return the command with the text of its script in place of the digest."""
    return ("EVAL", _SCRIPTS[str(command[1])].text, *command[2:])
