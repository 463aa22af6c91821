"""A server's entry in a host's configuration file: a target, or an error that says what is wrong."""

import json

from mcpearl.client.targets import ReachOptions, find_target
from tests.fuzz.target import Target, require

REFUSALS = (TypeError, ValueError, FileNotFoundError)


def check(data: bytes) -> None:
    try:
        entry = json.loads(data)
    except (ValueError, RecursionError):
        entry = data.decode("utf-8", "replace")
    try:
        target = find_target(entry, ReachOptions())
    except REFUSALS as error:
        mine = str(error).startswith(("cannot ", "a server's configuration ", "`auth`"))
        require(mine, f"a refusal that is not ours: {type(error).__name__} {error}")
        return
    require(target.name and target.identity, "a target without a name")
    again = find_target(entry, ReachOptions())
    require(again.identity == target.identity, "the same entry is two servers")


WORDS = (
    b'{"command":"python","args":["a.py"]}',
    b'"env":{"A":"b"}',
    b'"cwd":"/tmp"',
    b'"args":',
    b'"command":',
    b"http://127.0.0.1:1/mcp",
    b"tcp://127.0.0.1:1",
    b"unix:///x",
    b"ws://a/b",
    b"wss://[::1]:2",
    b"null",
)
TARGET = Target("configurations", check, WORDS)
