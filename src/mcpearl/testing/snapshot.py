"""Snapshots of what a server offers, kept in a file beside the tests and compared in each run."""

import difflib
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, overload

import msgspec

from mcpearl.client.client import Client
from mcpearl.sync.client import SyncClient
from mcpearl.testing.changes import compare_offers

_MOST_LINES = 200  # of a diff


async def offer_of(client: Client) -> dict[str, Any]:
    """Return everything that a server offers, as JSON: tools, resources, prompts and so on, by name.

    Args:
        client: A client that is connected to it.
    """
    capabilities = client.server_capabilities
    info = client.server_info
    offer: dict[str, Any] = {
        "server": None if info is None else {"name": info.name, "title": info.title},
        "instructions": client.instructions,
        "capabilities": msgspec.to_builtins(capabilities),
    }
    if capabilities.tools is not None:
        offer["tools"] = await _by(client.tools(), "name")
    if capabilities.resources is not None:
        offer["resources"] = await _by(client.resources(), "uri")
        offer["resourceTemplates"] = await _by(client.resource_templates(), "uriTemplate")
    if capabilities.prompts is not None:
        offer["prompts"] = await _by(client.prompts(), "name")
    return offer


async def _by(items: AsyncIterator[Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async for item in items:
        plain = msgspec.to_builtins(item)
        found[plain.pop(key)] = plain
    return dict(sorted(found.items()))


class Snapshot:
    """What a server offered, in a file. `check` fails when it offers something else.

    >>> await Snapshot(Path("tests/snapshots/weather.json")).check(client)

    Args:
        path: The file.
        update: Write the file anew instead of comparing.
    """

    def __init__(self, path: str | Path, *, update: bool = False) -> None:
        self.path = Path(path)
        self.update = update
        self.pending = 0
        """How many checks were called, and not awaited yet."""

    @overload
    def check(self, client: Client) -> Awaitable[None]: ...

    @overload
    def check(self, client: SyncClient) -> None: ...

    def check(self, client: Client | SyncClient) -> Awaitable[None] | None:
        """Compare what a server offers with the snapshot; AssertionError says what has changed.

        Args:
            client: A client that is connected to it; with a `Client`, await the check.
        """
        __tracebackhide__ = True
        if isinstance(client, SyncClient):
            self.compare(client.run(offer_of))
            return None
        self.pending += 1
        return self._check(client)

    async def _check(self, client: Client) -> None:
        __tracebackhide__ = True
        self.pending -= 1
        self.compare(await offer_of(client))

    def compare(self, offered: dict[str, Any]) -> None:
        """Compare an offer with the snapshot; AssertionError says what has changed.

        Args:
            offered: What `offer_of` returned.
        """
        __tracebackhide__ = True  # pytest shows the test instead
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(_written(offered))
            return
        try:
            kept = json.loads(self.path.read_text())
        except FileNotFoundError:
            raise AssertionError(
                f"there is no snapshot {_shown(self.path)} yet; to write it: pytest --mcpearl-update"
            ) from None
        except ValueError as error:
            raise AssertionError(
                f"the snapshot {_shown(self.path)} is not JSON ({error}); "
                "to write it anew: pytest --mcpearl-update"
            ) from None
        if kept != json.loads(_written(offered)):
            raise AssertionError(self._difference(kept, offered))

    def _difference(self, kept: dict[str, Any], offered: dict[str, Any]) -> str:
        changes = compare_offers(kept, offered)
        lines = [f"what the server offers is not what {_shown(self.path)} says"]
        for title, breaking in (("breaks callers", True), ("different", False)):
            found = [
                f"  {each.where}: {each.what}" for each in changes if each.breaking is breaking
            ]
            if found:
                lines += ["", f"{title}:", *found]
        names = "snapshot", "offered"
        diff = list(
            difflib.unified_diff(
                _written(kept).splitlines(), _written(offered).splitlines(), *names, lineterm=""
            )
        )
        lines += ["", *diff[:_MOST_LINES]]
        if len(diff) > _MOST_LINES:
            lines.append(f"… and {len(diff) - _MOST_LINES} more lines")
        lines += ["", "if it is meant to be so: pytest --mcpearl-update"]
        return "\n".join(lines)


def _written(offer: dict[str, Any]) -> str:
    return json.dumps(offer, indent=2, ensure_ascii=False) + "\n"


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
