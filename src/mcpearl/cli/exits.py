"""Exit codes of the command, and what raises them."""

from enum import IntEnum


class Exit(IntEnum):
    """What an exit code of `mcpearl` means."""

    OK = 0
    """It was done."""
    FAILED = 1
    """It was tried and failed: a tool reported an error, a check found problems."""
    USAGE = 2
    """The command line is wrong; nothing was tried."""
    UNREACHABLE = 3
    """The target could not be started or reached, or the connection was lost."""
    NOT_FOUND = 4
    """The target does not have the tool, resource, prompt or method."""
    DENIED = 5
    """The target wants a login, or refused it."""
    TIMEOUT = 6
    """The target did not answer in time."""
    INTERRUPTED = 130
    """Ctrl-C."""


class CommandFailed(Exception):
    """Ends the command with a message on stderr.

    Args:
        message: what happened, to what.
        code: the exit code.
        hint: what to do next.
    """

    def __init__(self, message: str, code: Exit = Exit.FAILED, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class NoServer(CommandFailed):
    """A file was loaded and has no server in it."""


def as_failure(error: BaseException) -> CommandFailed | None:
    """Return how an error of mcpearl ends the command; None for an error that is a defect."""
    if isinstance(error, CommandFailed):
        return error
    from mcpearl.protocol.errors import (
        AuthorizationFailed,
        CapabilityMissing,
        ConnectionLost,
        McpearlError,
        McpError,
        ResourceNotFound,
    )
    from mcpearl.runtime.arguments import Unusable
    from mcpearl.transports.http_client.failures import PASS_AUTH
    from mcpearl.types.jsonrpc import METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

    match error:
        case AuthorizationFailed():
            hint = "log in with `--auth oauth`, or pass `--auth TOKEN` or `--header`"
            return CommandFailed(str(error).removesuffix(f"; {PASS_AUTH}"), Exit.DENIED, hint)
        case ConnectionLost():
            return CommandFailed(
                str(error), Exit.UNREACHABLE, "`mcpearl doctor TARGET` looks for the cause"
            )
        case TimeoutError():
            return CommandFailed(
                str(error) or "it took too long", Exit.TIMEOUT, "allow more: `--timeout`"
            )
        case ResourceNotFound() | CapabilityMissing():
            return CommandFailed(str(error), Exit.NOT_FOUND)
        case McpError(code=code) if code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            return CommandFailed(
                str(error), Exit.FAILED, "some questions can only be answered at a terminal"
            )
        case McpError(data={"status": int(status)}) if _is_of_http(status, error.message):
            return CommandFailed(
                str(error), Exit.UNREACHABLE, "is the path right? That of MCP servers is often /mcp"
            )
        case McpError(code=code):
            return CommandFailed(
                str(error), Exit.NOT_FOUND if code == METHOD_NOT_FOUND else Exit.FAILED
            )
        case McpearlError() if isinstance(error, ValueError):  # a configuration that cannot be used
            return CommandFailed(str(error), Exit.USAGE)
        case McpearlError():
            return CommandFailed(str(error))
        case Unusable() | FileNotFoundError():
            return CommandFailed(str(error), Exit.USAGE)
        case OSError():
            return CommandFailed(str(error), Exit.UNREACHABLE)
    return None


def _is_of_http(status: int, message: str) -> bool:
    """Return whether an error was made from an answer of HTTP; those of servers may have a status too."""
    return status == 200 or f"HTTP status {status}" in message
