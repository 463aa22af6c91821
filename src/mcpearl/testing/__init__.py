"""A testing kit for servers: clients on any wire, snapshots, recordings, faults, time, and exploring.

With pytest, the fixtures `mcp_client`, `mcp_url`, `mcp_answers`, `mcp_heard`, `mcp_snapshot` and
`mcp_clock` are there by themselves; see `mcpearl.testing.plugin`. Names are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.testing.answers import Answers, Asked, Heard
    from mcpearl.testing.changes import Change, compare_offers
    from mcpearl.testing.clock import MovableClock
    from mcpearl.testing.connecting import WIRES, connected, connected_sync
    from mcpearl.testing.exploring import Finding, Report, check_tools, explore
    from mcpearl.testing.faults import Fault, Line, Passing, faulty
    from mcpearl.testing.playing import Playback, playback
    from mcpearl.testing.recording import Departed, record
    from mcpearl.testing.replaying import replay
    from mcpearl.testing.snapshot import Snapshot, offer_of
    from mcpearl.testing.waiting import eventually

_HOMES = {
    "Answers": "answers",
    "Asked": "answers",
    "Change": "changes",
    "Departed": "recording",
    "Fault": "faults",
    "Finding": "exploring",
    "Heard": "answers",
    "Line": "faults",
    "MovableClock": "clock",
    "Passing": "faults",
    "Playback": "playing",
    "Report": "exploring",
    "Snapshot": "snapshot",
    "WIRES": "connecting",
    "check_tools": "exploring",
    "compare_offers": "changes",
    "connected": "connecting",
    "connected_sync": "connecting",
    "eventually": "waiting",
    "explore": "exploring",
    "faulty": "faults",
    "offer_of": "snapshot",
    "playback": "playing",
    "record": "recording",
    "replay": "replaying",
}

__all__ = [
    "WIRES",
    "Answers",
    "Asked",
    "Change",
    "Departed",
    "Fault",
    "Finding",
    "Heard",
    "Line",
    "MovableClock",
    "Passing",
    "Playback",
    "Report",
    "Snapshot",
    "check_tools",
    "compare_offers",
    "connected",
    "connected_sync",
    "eventually",
    "explore",
    "faulty",
    "offer_of",
    "playback",
    "record",
    "replay",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mcpearl.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mcpearl.testing.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
