"""Extensions of the protocol: what servers and clients announce under one identifier (SEP-2133).

`Extension` is what both sides have in common. `mcpearl.server.extensions.ServerExtension` and its
counterpart on the client add what an extension does there.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_IDENTIFIER = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}/{_NAME}")


class Extension:
    """One extension of the protocol. Subclasses set the identifier."""

    identifier: ClassVar[str]
    """A reversed domain name and a name, such as `com.example/audit`."""

    def settings(self) -> dict[str, Any]:
        """Return the settings to announce; `{}` announces the extension without any."""
        return {}


def announced(extensions: Iterable[Extension]) -> dict[str, dict[str, Any]]:
    """Return the settings of extensions by identifier, as capabilities have them.

    Raises `ValueError` for an identifier that is not valid, and for a duplicate.
    """
    found: dict[str, dict[str, Any]] = {}
    for extension in extensions:
        identifier = getattr(extension, "identifier", None)
        if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
            raise ValueError(
                f"{identifier!r} of {type(extension).__name__} is not an extension identifier; "
                "write a prefix and a name, such as `com.example/audit`"
            )
        if identifier in found:
            raise ValueError(f"there are two extensions `{identifier}`")
        found[identifier] = extension.settings()
    return found


def declared(extensions: Mapping[str, Any] | None, identifier: str) -> bool:
    """Return whether an extension is among those of a peer's capabilities."""
    return extensions is not None and identifier in extensions
