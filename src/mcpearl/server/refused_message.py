"""A message that the protocol refused, as logs and observers see it."""

import msgspec

from mcpearl.types.base import decode
from mcpearl.types.jsonrpc import ErrorObject


class _Failed(msgspec.Struct):
    error: ErrorObject


class RefusedMessage:
    """An encoded error, which is decoded only when it is read."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    @property
    def code(self) -> int:
        """The code of the error."""
        return decode(_Failed, self._message).error.code

    def __str__(self) -> str:
        error = decode(_Failed, self._message).error
        return f"{ascii(error.message[:512])[1:-1]} [{error.code}]"
