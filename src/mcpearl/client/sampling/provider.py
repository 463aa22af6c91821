"""What the providers of models have in common: choosing a model, asking over HTTP, reporting failures.

Each provider's module writes requests and reads responses in its format; `Provider` does the rest.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from ssl import SSLContext
from typing import Any, TypedDict
from urllib.parse import urlsplit

import msgspec

from mcpearl._version import __version__
from mcpearl.client.sampling.models import Models
from mcpearl.net.http_client.dial import tls_context
from mcpearl.net.http_client.exchange import ExchangeFailed, Header, HttpExchange
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.http_client.urls import split_address, target_of
from mcpearl.net.tls import Tls
from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import McpError, Overloaded, RateLimited, brief
from mcpearl.runtime.backoff import Backoff
from mcpearl.types.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    SamplingMessageContentBlock,
    TextContent,
    ToolResultContent,
)
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcpearl.types.sampling import CreateMessageRequestParams, CreateMessageResult
from mcpearl.types.tools import Tool

logger = logging.getLogger("mcpearl.sampling")

Json = dict[str, Any]
MAX_RESPONSE = 16 * 1024 * 1024  # bytes of a provider's response
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504, 529)  # worth another attempt
_AGAIN = Backoff(delays=(0.5, 1.0, 2.0))
_LONGEST_WAIT = 20.0  # seconds that a provider may ask to wait before the next attempt
_SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class SamplingOptions(TypedDict, total=False):
    """The options of all providers; `Provider` describes each."""

    models: Sequence[str] | Mapping[str, str]
    fast: str | None
    smart: str | None
    max_tokens: int
    approve: Callable[[CreateMessageRequestParams], Any] | None
    timeout: float
    attempts: int
    tls: Tls | SSLContext | None
    proxy: str | None
    headers: Mapping[str, str] | None


class Provider:
    """Answers sampling requests with a model at an HTTP endpoint; pass it as `Client(sampling=…)`.

    Args:
        model: The model that answers unless the server prefers another one that is configured.
        base_url: The address of the API, without `path`.
        key: The API key; it is never shown.
        models: Further models that hints of a server may choose; or models by the names that hints may
            contain.
        fast: The model for servers that prefer speed or low cost.
        smart: The model for servers that prefer intelligence.
        max_tokens: The most tokens that a server may ask for in one answer.
        approve: Called with each request before it is sent, and may be async; False refuses it.
        timeout: Seconds for an answer, including all attempts.
        attempts: How often a request is sent at most when the provider is busy.
        tls: The certificates to trust and to present.
        proxy: The `http://` address of a proxy; by default the one that environment variables name.
        headers: Further headers of each request.
    """

    path = ""
    """Path of the endpoint below `base_url`."""
    name = ""
    """The provider's name, for messages."""
    _url = ""

    def __init__(
        self,
        model: str,
        base_url: str,
        key: str | None,
        *,
        models: Sequence[str] | Mapping[str, str] = (),
        fast: str | None = None,
        smart: str | None = None,
        max_tokens: int = 16_384,
        approve: Callable[[CreateMessageRequestParams], Any] | None = None,
        timeout: float = 240.0,
        attempts: int = 3,
        tls: Tls | SSLContext | None = None,
        proxy: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if key is not None and (not key.isascii() or not key.isprintable() or not key.strip()):
            raise ValueError(
                f"the API key for {self.name} is empty, or has other characters than printable ASCII"
            )
        if max_tokens < 1 or attempts < 1:
            raise ValueError("`max_tokens` and `attempts` are at least 1")
        self._url = base_url.rstrip("/") + self.path
        split_address(self._url)  # refuses what is not an address
        self._models = Models(model, models, fast, smart)
        self._key = key
        self._max_tokens = max_tokens
        self._approve = approve
        self._timeout = timeout
        self._attempts = attempts
        self._tls = tls
        self._proxy = proxy
        self._headers = dict(headers or {})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {urlsplit(self._url).hostname}>"

    # How the provider writes requests and responses

    def _authorization(self, key: str) -> list[Header]:
        """Return the headers that carry the key."""
        return [("Authorization", f"Bearer {key}")]

    def _request(self, params: CreateMessageRequestParams, model: str, names: "ToolNames") -> Json:
        """Write a request."""
        raise NotImplementedError

    def _result(self, response: Json, names: "ToolNames") -> CreateMessageResult:
        """Read a response; an error means that the response is not in the provider's format."""
        raise NotImplementedError

    def _problem(self, response: Json) -> str:
        """Return what an error response says."""
        error = response.get("error")
        return str(error.get("message") or "") if isinstance(error, dict) else str(error or "")

    # Answering

    async def __call__(self, params: CreateMessageRequestParams) -> CreateMessageResult | None:
        """Answer a server's request for a message.

        Args:
            params: The request.
        """
        if self._approve is not None:
            approved = self._approve(params)
            if inspect.isawaitable(approved):
                approved = await approved
            if not approved:
                return None
        if params.max_tokens > self._max_tokens:
            params = msgspec.structs.replace(params, max_tokens=self._max_tokens)
        names = ToolNames(params.tools or ())
        body = self._request(params, self._models.choose(params.model_preferences), names)
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._asked(msgspec.json.encode(body))
        except TimeoutError:
            raise self._failed(f"no answer within {self._timeout:g} s") from None
        try:
            return self._result(response, names)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            logger.debug("an answer of %s is not in its format", self.name, exc_info=error)
            raise self._failed("the answer is not in the provider's format") from None

    async def _asked(self, body: bytes) -> Json:
        """Send a request until it is answered, or the attempts are used up."""
        tls = tls_context(self._tls) if self._url.startswith("https:") else None
        # Models take seconds to answer, so each question gets its own connection: none stays open.
        connections = ConnectionPool(self._url, tls=tls, proxy=self._proxy)
        try:
            return await self._answered(connections, body)
        finally:
            connections.close()

    async def _answered(self, connections: ConnectionPool, body: bytes) -> Json:
        for attempt in range(self._attempts):
            last = attempt + 1 == self._attempts
            try:
                status, headers, response = await self._exchange(connections, body)
            except ExchangeFailed as error:
                if last or error.sent:  # what was sent may be answered, and billed, already
                    raise self._failed(error.reason) from None
                await asyncio.sleep(_AGAIN.delay(attempt))
                continue
            if 200 <= status < 300:
                return response
            wait = _seconds(headers.get("retry-after"))
            patient = wait is None or wait <= _LONGEST_WAIT
            if last or status not in _BUSY or not patient:
                raise self._refused(status, response, wait)
            await asyncio.sleep(_AGAIN.delay(attempt) if wait is None else wait)
        raise AssertionError("unreachable")

    async def _exchange(
        self, connections: ConnectionPool, body: bytes
    ) -> tuple[int, Mapping[str, str], Json]:
        headers: list[Header] = [
            ("Accept", "application/json"),
            ("Content-Type", "application/json"),
            ("User-Agent", f"mcpearl/{__version__}"),
            *self._headers.items(),
        ]
        if self._key is not None:
            headers += self._authorization(self._key)
        exchange = await connections.acquire()
        try:
            exchange.send("POST", target_of(urlsplit(self._url)), headers, body)
            await exchange.answered()
            data = await self._body(exchange)
        finally:
            exchange.release()
        try:
            response = msgspec.json.decode(data)
        except UNREADABLE:
            response = {}
        return exchange.status, exchange.headers, response if isinstance(response, dict) else {}

    async def _body(self, exchange: HttpExchange) -> bytes:
        data = bytearray()
        while chunk := await exchange.chunk():
            data += chunk
            if len(data) > MAX_RESPONSE:
                raise self._failed(f"the answer has more than {MAX_RESPONSE} bytes")
        return bytes(data)

    # Failing

    def _failed(self, reason: str) -> McpError:
        return McpError(
            INTERNAL_ERROR, f"The client's model at {self.name} did not answer: {reason}"
        )

    def _refused(self, status: int, response: Json, wait: float | None) -> McpError:
        """Make the error for the server, without what the provider says about the key."""
        said = self._problem(response)
        if self._key is not None:
            said = said.replace(self._key, "…")
        said = brief(said, 500)
        logger.warning(
            "%s answered %d: %s", self.name, status, "" if status in (401, 403) else said
        )
        match status:
            case 401 | 403:
                return self._failed("it does not accept the client's API key")
            case 429:
                return RateLimited(f"the client's model at {self.name}", wait or 1.0)
            case 503 | 529:
                return Overloaded(f"The client's model at {self.name} is overloaded", wait or 1.0)
            case 400 | 413 | 422:
                return McpError(INVALID_PARAMS, f"The model at {self.name} refused this: {said}")
            case _:
                return self._failed(f"HTTP {status}{f': {said}' if said else ''}")

    def _unsupported(self, what: str) -> McpError:
        return McpError(INVALID_PARAMS, f"The client's model at {self.name} takes no {what}")


class ToolNames:
    """Maps the names of a request's tools to names that providers accept, and back.

    Most names are accepted as they are.

    Args:
        tools: The tools of the request.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._safe: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for tool in tools:
            if _SAFE.fullmatch(tool.name):
                self._set(tool.name, tool.name)
        for number, tool in enumerate(tools):
            if tool.name not in self._safe:
                safe = f"{_UNSAFE.sub('_', tool.name[:100])[:40]}_{number}"
                while safe in self._own:
                    safe += "_"
                self._set(tool.name, safe)

    def _set(self, own: str, safe: str) -> None:
        self._safe[own] = safe
        self._own[safe] = own

    def safe(self, own: str) -> str:
        """Return the name for the provider, even of a tool that only the conversation mentions."""
        return self._safe.get(own) or _UNSAFE.sub("_", own)[:64] or "_"

    def own(self, safe: str) -> str:
        """Return the server's name of a tool that the model wants to call."""
        return self._own.get(safe, safe)


def blocks(
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock],
) -> list[SamplingMessageContentBlock]:
    """Return the content blocks of a message."""
    return content if isinstance(content, list) else [content]


def parts_of(result: ToolResultContent) -> tuple[str, list[ImageContent], list[AudioContent]]:
    """Return the text, the images and the audio of a tool's result."""
    texts: list[str] = []
    images: list[ImageContent] = []
    sounds: list[AudioContent] = []
    for block in result.content:
        match block:
            case TextContent():
                texts.append(block.text)
            case ImageContent():
                images.append(block)
            case AudioContent():
                sounds.append(block)
            case ResourceLink():
                texts.append(f"{block.name}: {block.uri}")
            case EmbeddedResource():
                texts.append(block.resource.text or block.resource.uri)
    if not result.content and result.structured_content is not None:
        texts.append(msgspec.json.encode(result.structured_content).decode())
    return "\n".join(texts), images, sounds


def one_or_all(
    content: list[SamplingMessageContentBlock],
) -> SamplingMessageContentBlock | list[SamplingMessageContentBlock]:
    """Return a message's content as every version of the protocol reads it: one block without a list."""
    if not content:
        return TextContent(text="")
    return content[0] if len(content) == 1 else content


def _seconds(value: str | None) -> float | None:
    """Read `Retry-After` as seconds; a date is ignored."""
    try:
        seconds = float(value) if value is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < 1e6 else None
