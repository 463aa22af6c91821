"""The errors this package raises for its users, in one hierarchy.

`McpError` is a JSON-RPC error answer: raised by the side that received it, and by handlers to send
one. The others are never sent; they say what happened to a request on this side.
"""

from math import ceil
from typing import Any

from msgspec import UNSET

from mcpearl.types.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    OVERLOADED,
    RATE_LIMITED,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    ErrorObject,
)

USER_REJECTED = -1


def brief(text: str, limit: int = 256) -> str:
    """Shorten text of a peer for use in a message of this side."""
    return text if len(text) <= limit else text[:limit] + "…"


def _last_lines(stderr: str) -> str:
    return f"\nlast lines of its stderr:\n{stderr}" if stderr else ""


class McpearlError(Exception):
    """Base of all errors that this package raises."""


class McpError(McpearlError):
    """A JSON-RPC error answer, received from the peer or raised by a handler to be sent.

    Args:
        code: The JSON-RPC error code.
        message: One sentence that says what went wrong.
        data: Any JSON value with details.

    >>> raise McpError(-32602, "no such city", {"city": "Atlantis"})
    """

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def of(cls, error: ErrorObject) -> "McpError":
        """Return the exception for a received error answer.

        Args:
            error: The `error` member of the answer.
        """
        return McpError(error.code, error.message, error.data)

    def __str__(self) -> str:
        detail = "" if self.data is UNSET or self.data is None else f" ({self.data})"
        return f"{self.message} [{self.code}]{detail}"


def answer_too_large(size: int, limit: int) -> McpError:
    """Return the error that replaces an answer over the limit."""
    return McpError(
        INTERNAL_ERROR,
        f"The answer has {size} bytes, over the {limit} of `Limits.max_outgoing`, "
        "which the answers of a batch share",
    )


def no_room_for_answer(size: int) -> McpError:
    """Return the error that replaces an answer of a batch if the server has no room to hold it."""
    return McpError(
        INTERNAL_ERROR,
        f"The server has no room to hold this answer of {size} bytes until the rest of its batch is "
        "done; send the request by itself, or later",
    )


class TryLater(McpError):
    """The call was refused before any of it ran, and may be repeated after a while.

    Args:
        code: The JSON-RPC error code.
        message: One sentence that says which limit was reached.
        retry_after: Seconds to wait.
    """

    def __init__(self, code: int, message: str, retry_after: float) -> None:
        seconds = ceil(retry_after * 1000) / 1000
        super().__init__(code, f"{message}; try again in {seconds:g} s", {"retryAfter": seconds})
        self.retry_after = seconds


class RateLimited(TryLater):
    """The caller makes more calls than it is allowed.

    Args:
        limit: The limit, in words.
        retry_after: Seconds until the next call is allowed.
    """

    def __init__(self, limit: str, retry_after: float) -> None:
        super().__init__(RATE_LIMITED, f"Over the limit of {limit}", retry_after)


class Overloaded(TryLater):
    """The server, or one of its tools, has more work than it can do.

    Args:
        reason: What is overloaded.
        retry_after: Seconds to wait.
    """

    def __init__(self, reason: str, retry_after: float = 1.0) -> None:
        super().__init__(OVERLOADED, reason, retry_after)


class ResourceNotFound(McpError):
    """There is no resource with this URI. The error code depends on the protocol version.

    Args:
        uri: The URI that was asked for.
        reason: Why it names no resource, where that is known.
    """

    def __init__(self, uri: str, reason: str | None = None) -> None:
        said = f"Resource not found: {uri}" + (f" ({reason})" if reason else "")
        super().__init__(RESOURCE_NOT_FOUND, said, {"uri": uri})
        self.uri = uri


class MissingClientCapability(McpError):
    """The handler needs a capability that the client did not declare.

    Args:
        capability: Its name, for the message.
        required: The capability as `ClientCapabilities` would declare it.
    """

    def __init__(self, capability: str, required: dict[str, Any]) -> None:
        super().__init__(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"The client did not declare the capability `{capability}`",
            {"requiredCapabilities": required},
        )
        self.capability = capability


class InsufficientScope(McpError):
    """The caller lacks scopes; `scopes` are all that are needed."""

    def __init__(self, what: str, name: str, scopes: frozenset[str]) -> None:
        needed = sorted(scopes)
        super().__init__(
            INVALID_PARAMS,
            f"{what} `{brief(name, 128)}` needs the scopes: {' '.join(needed)}",
            {"name": brief(name, 128), "requiredScopes": needed},
        )
        self.scopes = scopes


class UrlElicitationRequired(McpError):
    """The call needs the user to visit one or more URLs first (2025-11-25).

    Args:
        elicitations: The params of one `elicitation/create` in URL mode for each URL.
        message: The error message, if not the default.
    """

    def __init__(self, elicitations: list[dict[str, Any]], message: str | None = None) -> None:
        super().__init__(
            URL_ELICITATION_REQUIRED,
            message or "This request needs the user to complete an interaction at a URL first",
            {"elicitations": elicitations},
        )


class ToolError(McpearlError):
    """Raise it in a tool to answer with `isError: true` and this text, for the model to read."""


class RequestTimeout(McpearlError, TimeoutError):
    """No answer arrived in time. The peer has been asked to cancel the request.

    Args:
        method: The method of the request.
        seconds: How long this side waited for the answer.
        hard: Whether progress could not extend the time any further.
        setting: The option that allows more time.
        stderr: The last lines that a server process wrote to stderr.
        subject: What was asked for: the name of a tool or prompt, or the URI of a resource.
    """

    def __init__(
        self,
        method: str,
        seconds: float,
        *,
        hard: bool = False,
        setting: str = "timeout",
        stderr: str = "",
        subject: str = "",
    ) -> None:
        limit = "the maximum time allowed" if hard else "the timeout"
        what = f"`{method}` of `{brief(subject, 128)}`" if subject else f"`{method}`"
        super().__init__(
            f"{what} was not answered within {seconds:g} s, {limit}; "
            f"pass a larger `{setting}` if the work takes that long{_last_lines(stderr)}"
        )
        self.method = method
        self.seconds = seconds
        self.hard = hard


class TaskTimeout(RequestTimeout):
    """A task did not end in time. It keeps running at the server, under `task_id`.

    Args:
        task_id: The id of the task.
        seconds: How long the client waited for it.
    """

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__("tools/call", seconds)
        self.task_id = task_id

    def __str__(self) -> str:
        return (
            f"task {brief(self.task_id, 64)} did not end within {self.seconds:g} s; it goes on at "
            "the server, and `client.task(id)` takes it up again"
        )


class TaskCancelled(McpearlError):
    """The task was cancelled before it had a result.

    Args:
        task_id: The id of the task.
        message: What the server says of it.
    """

    def __init__(self, task_id: str, message: str | None = None) -> None:
        why = f": {brief(message)}" if message else ""
        super().__init__(f"task {brief(task_id, 64)} was cancelled{why}")
        self.task_id = task_id


class ConnectionLost(McpearlError, ConnectionError):
    """The connection ended while a request was waiting, or before it was sent.

    Args:
        reason: Why the connection ended.
        maybe_executed: Whether the peer may have received the request; False only if it certainly has
            not.
        exit_code: What the server's process ended with, if it is one of this client's and has ended.
        stderr: What that process wrote to standard error; the last lines are part of the message.
    """

    def __init__(
        self,
        reason: str,
        *,
        maybe_executed: bool = False,
        exit_code: int | None = None,
        stderr: str = "",
    ) -> None:
        super().__init__(f"{reason}{_last_lines(stderr)}")
        self.reason = reason
        self.maybe_executed = maybe_executed
        self.exit_code = exit_code
        self.stderr = stderr


class SessionLost(ConnectionLost):
    """The server no longer knows the session; a new one can be opened at once."""


class AuthorizationFailed(McpearlError):
    """The server refuses this client, and nothing is left to try. The message says what was tried."""


class LimitReached(McpearlError):
    """A limit of this side was reached. The message names it and its setting."""


class InvalidResult(McpearlError):
    """The peer answered with something that is not a valid result of the method."""


class CapabilityMissing(McpearlError):
    """The server did not announce the capability that a client method needs. Nothing was sent."""


class Malformed(McpearlError):
    """Bytes that are not a message: the reason, and the id to answer with if one was readable."""

    def __init__(
        self, code: int, message: str, id: int | str | None = None, *, is_answer: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id
        self.is_answer = is_answer  # never answered: two peers could go on answering forever
