"""What a server announces to every client: its identity, capabilities and versions."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import asdict

from mcpearl.protocol.routes import NOTICES_TO_SERVER, TO_SERVER, Route
from mcpearl.protocol.versions import SUPPORTED, VERSIONS
from mcpearl.types.base import Implementation
from mcpearl.types.capabilities import TASKS_EXTENSION, ServerCapabilities


class Offer:
    """What a server announces. The server owns it, and renews it when its capabilities change."""

    __slots__ = (
        "beyond",
        "capabilities",
        "gate",
        "info",
        "instructions",
        "legacy_versions",
        "notices",
        "paths",
        "routes",
        "versions",
    )

    def __init__(
        self,
        info: Implementation,
        capabilities: ServerCapabilities,
        instructions: str | None = None,
        versions: tuple[str, ...] = SUPPORTED,
    ) -> None:
        self.gate: Callable[[str], None] | None = None
        """Called with the method of each request before its params are read. Raises `McpError` if the
        request must be refused now."""
        self.beyond: Callable[[str], Route | None] | None = None
        """Returns the route of a method that `routes` lacks, on a server that passes unknown methods on;
        None if it does not pass this one on."""
        self.routes: Mapping[str, Route] = TO_SERVER
        self.notices: Mapping[str, Route] = NOTICES_TO_SERVER
        self.info = info
        self.instructions = instructions
        self.versions = versions  # newest first
        self.legacy_versions = tuple(v for v in reversed(versions) if not VERSIONS[v].modern)
        self.renew(capabilities)

    def renew(self, capabilities: ServerCapabilities) -> None:
        """Announce these capabilities from now on."""
        self.capabilities = capabilities
        self.paths = paths_of(capabilities)  # every capability, such as `resources.subscribe`

    def extend(self, routes: Mapping[str, Route], notices: Mapping[str, Route]) -> None:
        """Take methods and notifications that are not the specification's.

        Raises `ValueError` for a method that the specification has.
        """
        taken = sorted({*routes} & {*TO_SERVER} | {*notices} & {*NOTICES_TO_SERVER})
        if taken:
            raise ValueError(
                f"`{taken[0]}` is a method of the specification and cannot be replaced"
            )
        self.routes = {**TO_SERVER, **routes}
        self.notices = {**NOTICES_TO_SERVER, **notices}

    def has(self, path: str) -> bool:
        """Whether a capability such as `resources.subscribe` is offered."""
        return path in self.paths


def _is_on(setting: object) -> bool:
    # An empty object means that the capability is present, without settings.
    return setting is not None and setting is not False


def paths_of(capabilities: ServerCapabilities) -> frozenset[str]:
    """Return the paths of all capabilities, as used in `SERVER_NEEDS`."""
    found: set[str] = set()
    for name, value in asdict(capabilities).items():
        if value is None:
            continue
        found.add(name)
        members = asdict(value) if isinstance(value, Struct) else value
        found |= {f"{name}.{member}" for member, setting in members.items() if _is_on(setting)}
    if TASKS_EXTENSION in (capabilities.extensions or ()):
        found |= {"tasks", "tasks.cancel"}
    return frozenset(found)
