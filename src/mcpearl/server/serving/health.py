"""Whether a server is alive and ready for work, and why not."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.runtime.tree import Node
from mcpearl.server.tree import DISPENSABLE
from mcpearl.server.web import HealthCheck

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")

_PATIENCE = 5.0  # seconds that a check has
_LATE = 1.0  # seconds that the event loop may be held up
_RECENTLY = 2.0  # seconds for which a server is not ready after that


class Health:
    """Answers under one path: `…/live`, `…/ready`, and the path itself, which means ready.

    Args:
        server: The server.
        path: The path; None for a server without health checks.
    """

    def __init__(self, server: "Server", path: str | None) -> None:
        self._server = server
        base = None if path is None else path.rstrip("/")
        if base is not None:
            server.lag.wanted = True
            if server.web.board is not None:
                server.lag.also.append(self._tell_others)
        self._live = None if base is None else f"{base}/live"
        self._ready = () if base is None else (base, f"{base}/ready")
        self._passed = True  # whether all checks and stores were well when last asked
        self._running: dict[int, asyncio.Task[Any]] = {}  # checks that have not ended, by place

    async def answer(self, path: str) -> tuple[int, bytes] | None:
        """Return the status and the body of the answer; None for any other path."""
        if path == self._live:
            return 200, b'{"status":"alive"}'
        if path not in self._ready:
            return None
        found: dict[str, Any] = {"status": "ready"}
        reasons = await self.reasons()
        if reasons:
            found = {"status": "not ready", "reasons": reasons}
        if self._server.web.board is not None:
            self._tell_others()
            found["workers"] = self._server.web.board.summary()
        return 503 if reasons else 200, msgspec.json.encode(found)

    def _tell_others(self) -> None:
        """Note whether this worker is ready. Checks and stores count as they were when last asked."""
        web = self._server.web
        assert web.board is not None
        web.board.write(web.number, self._passed and not self._own_reasons())

    async def reasons(self) -> dict[str, str]:
        """Return why the server is not ready, by what is wrong; nothing if it is ready."""
        found = await self._stores()
        checks = self._server.web.checks
        answers = await asyncio.gather(*(self._check(*each) for each in enumerate(checks)))
        for check, reason in zip(checks, answers, strict=True):
            if reason is not None:
                found[_name_of(check)] = reason
        self._passed = not found
        return {**self._own_reasons(), **found}

    def _own_reasons(self) -> dict[str, str]:
        """Return what is wrong, as far as is known without running a check."""
        found: dict[str, str] = {}
        if self._server.web.draining:
            found["draining"] = "the server is shutting down"
        late = self._server.lag.worst(_RECENTLY)
        if late > _LATE:
            found["loop"] = f"the event loop was held up for {late:.1f} s just now"
        recorder = self._server.core.recorder
        if recorder is not None and recorder.refusing is not None:
            found["receipts"] = recorder.refusing
        for part in self._server.parts.root.tree().children:
            if part.name not in DISPENSABLE:
                found.update(_failed(part))
        return found

    async def _stores(self) -> dict[str, str]:
        """Return the stores that cannot be used."""
        found: dict[str, str] = {}
        for name, ping in self._server.stores().items():
            try:
                async with asyncio.timeout(_PATIENCE):
                    await ping()
            except TimeoutError:
                found[name] = f"no answer within {_PATIENCE:g} s"
            except Exception as error:
                logger.warning("the store %s is away", name, exc_info=True)
                found[name] = f"away: {type(error).__name__}"
        return found

    async def _check(self, place: int, check: HealthCheck) -> str | None:
        """Run a check; return the reason why it failed, or None.

        While a check runs, others that ask wait for the same run: one that hangs takes one thread.
        """
        work = self._running.get(place)
        if work is None:
            work = self._running[place] = asyncio.ensure_future(self._run(check))
            work.add_done_callback(partial(self._ended, place))
        await asyncio.wait((work,), timeout=_PATIENCE)
        if not work.done() and inspect.iscoroutinefunction(check):
            work.cancel()  # a function in a thread cannot be
        if not work.done() or work.cancelled():
            return f"no answer within {_PATIENCE:g} s"
        error = work.exception()
        if error is not None:
            logger.warning("the health check `%s` failed", _name_of(check), exc_info=error)
            return type(error).__name__
        answer = work.result()
        if answer is None or answer is True:
            return None
        return answer if isinstance(answer, str) else "failed"

    def _ended(self, place: int, work: "asyncio.Task[Any]") -> None:
        del self._running[place]
        if not work.cancelled():
            work.exception()  # marked as retrieved, also if nothing waits for it any more

    async def _run(self, check: HealthCheck) -> Any:
        if inspect.iscoroutinefunction(check):
            return await check()
        answer = await self._server.in_thread(check)
        return await answer if isinstance(answer, Awaitable) else answer


def _name_of(check: HealthCheck) -> str:
    return getattr(check, "__name__", type(check).__name__)


def _failed(part: Node) -> dict[str, str]:
    """Return the supervised parts that are down, this one or those below it, with their last error."""
    parts = (((part.name,), part), *part.walk((part.name,)))
    return {
        "/".join(path): each.last_error or str(each.state)
        for path, each in parts
        if each.state in ("failed", "waiting")
    }
