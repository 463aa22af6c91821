"""Whether a server is alive and ready for work, and why not."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.runtime.tree import Node
from mcpearl.server.web import HealthCheck

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")

_PATIENCE = 5.0  # seconds that a check has


class Health:
    """Answers under one path: `…/live`, `…/ready`, and the path itself, which means ready.

    Args:
        server: The server.
        path: The path; None for a server that does not tell.
    """

    def __init__(self, server: "Server", path: str | None) -> None:
        self._server = server
        base = None if path is None else path.rstrip("/")
        self._live = None if base is None else f"{base}/live"
        self._ready = () if base is None else (base, f"{base}/ready")

    async def answer(self, path: str) -> tuple[int, bytes] | None:
        """Return the status and the body of the answer; None for any other path."""
        if path == self._live:
            return 200, b'{"status":"alive"}'
        if path not in self._ready:
            return None
        reasons = await self.reasons()
        if not reasons:
            return 200, b'{"status":"ready"}'
        return 503, msgspec.json.encode({"status": "not ready", "reasons": reasons})

    async def reasons(self) -> dict[str, str]:
        """Return why the server is not ready, by what is wrong; nothing if it is ready."""
        found: dict[str, str] = {}
        if self._server.web.draining:
            found["draining"] = "the server is shutting down"
        found.update(_failed(self._server.parts.root.tree()))
        checks = self._server.web.checks
        answers = await asyncio.gather(*(self._check(check) for check in checks))
        for check, reason in zip(checks, answers, strict=True):
            if reason is not None:
                found[getattr(check, "__name__", type(check).__name__)] = reason
        return found

    async def _check(self, check: HealthCheck) -> str | None:
        """Run a check; return the reason why it failed, or None."""
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await self._run(check)
        except TimeoutError:
            return f"no answer within {_PATIENCE:g} s"
        except Exception as error:
            logger.warning("the health check %r failed", check, exc_info=True)
            return type(error).__name__
        if answer is None or answer is True:
            return None
        return answer if isinstance(answer, str) else "failed"

    async def _run(self, check: HealthCheck) -> Any:
        if inspect.iscoroutinefunction(check):
            return await check()
        answer = await self._server.in_thread(check)
        return await answer if isinstance(answer, Awaitable) else answer


def _failed(node: Node, path: str = "") -> dict[str, str]:
    """Return the supervised parts that are down, with their last error."""
    found: dict[str, str] = {}
    for child in node.children:
        name = f"{path}{child.name}"
        if child.state in ("failed", "waiting"):
            found[name] = child.last_error or str(child.state)
        found.update(_failed(child, f"{name}/"))
    return found
