"""An authority for tests that are not about tokens."""

from typing import Any

from mcpearl.auth import Principal


class ByName:
    """Takes the caller for the principal that a header names."""

    def document(self, request: Any) -> None:
        return None

    def known(self, request: Any) -> None:
        return None

    async def admit(self, request: Any) -> Principal:
        return Principal(request.headers[b"x-user"].decode())
