"""The clients of both TypeScript SDKs against our server, in the eras they know."""

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.interop.demo_server import NOTE, PIXEL
from tests.interop.peers import DEMO_SERVER, HERE, LEGACY, MODERN, NODE, run, serving

CASES = [
    ("stdio", "v1", "legacy", LEGACY[-1]),
    ("stdio", "v2", "legacy", LEGACY[-1]),
    ("stdio", "v2", "auto", MODERN),
    ("stdio", "v2", MODERN, MODERN),
    ("http", "v1", "legacy", LEGACY[-1]),
    ("http", "v2", "legacy", LEGACY[-1]),
    ("http", "v2", "auto", MODERN),
    ("http", "v2", MODERN, MODERN),
    ("sse", "v1", "legacy", LEGACY[-1]),
    ("sse", "v2", "legacy", LEGACY[-1]),
]

META = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "example.com/more": [1],
}


@contextmanager
def served(wire: str) -> Iterator[list[str]]:
    """Have a server: the command that starts it, or its URL."""
    if wire == "stdio":
        yield DEMO_SERVER
        return
    with serving(DEMO_SERVER) as url:
        yield [url if wire == "http" else url.replace("/mcp", "/sse")]


def walk(sdk: str, mode: str, target: list[str]) -> dict[str, Any]:
    done = run([NODE, str(HERE / "node" / "client.mjs"), sdk, mode, *target])
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert isinstance(met, dict)
    return met


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def check_features(met: dict[str, Any]) -> None:
    """Check what a walk met of a server like the demo server, of whatever SDK."""
    assert met["fail"]["isError"] and "failed: why not" in text_of(met["fail"])
    assert met["resources"] == [NOTE, "demo://pixel"]
    assert met["note"] == {"uri": NOTE, "mimeType": "text/plain", "text": "first"}
    assert b64decode(met["pixel"]["blob"]) == PIXEL
    assert json.loads(met["weather"]["text"]) == {"city": "Oslo", "sky": "snow"}
    (message,) = met["brief"]["messages"]
    assert message["content"]["text"] == "Give me a short weather briefing for Oslo."
    assert met["completion"] == {
        "values": ["Karl Johans gate", "Kirkeveien"],
        "total": 2,
        "hasMore": False,
    }

    assert met["progress"] == [[1, 3], [2, 3], [3, 3]]
    assert met["logs"] == [{"what": "news"}, "a problem"]
    # And the server noticed, or the walk would not have ended.
    assert met["cancelled"] == "given up"

    assert text_of(met["book"]) == "booked 1: second class, insured True"
    assert text_of(met["pay"]) == "accept"
    assert text_of(met["consult"]) == "parrot-1: Yes."
    assert met["workplace"]["structuredContent"] == {"result": ["file:///srv/demo"]}
    assert text_of(met["survey"]) == "1 roots, Oslo, Yes."
    assert met["asked"][:4] == ["Where to?", "3 days in Oslo. Sure?", "Please pay.", "Nice?"]

    assert met["reflect"] == META and met["tag"] == [1]
    assert (met["audit"]["since"], met["audit"]["trace"]) == (3, META["traceparent"])
    # Two sessions may announce one change.
    assert list(dict.fromkeys(met["notices"])) == [NOTE, "notifications/tools/list_changed"]


@pytest.mark.parametrize(("wire", "sdk", "mode", "version"), CASES)
def test_walk(wire: str, sdk: str, mode: str, version: str):
    with served(wire) as target:
        met = walk(sdk, mode, target)
    assert met["errors"] == []  # what it received and could make no sense of
    assert met["version"] == version
    assert met["server"] == {"name": "demo", "version": "1.2.3", "title": "Demo"}
    assert met["instructions"] == "Try everything."

    assert len(met["tools"]) == 18 and met["tools"][:3] == ["add", "forecast", "echo"]
    assert met["add"]["structuredContent"] == {"result": 5} and text_of(met["add"]) == "5"
    assert met["forecast"]["structuredContent"] == {
        "city": "Lisbon",
        "days": ["sun", "sun"],
        "warm": True,
    }
    assert met["show"] == ["text", "image", "audio", "resource_link", "resource"]
    assert met["unknown"] == {"code": -32602}

    assert met["templates"] == ["demo://{city}/weather", "demo://{city}/secret"]
    # The second SDK shows its callers the modern code, whichever was sent.
    assert met["missing"] == {"code": -32002 if sdk == "v1" else -32602}

    assert met["prompts"] == ["brief", "dialogue", "personal", "visit"]
    check_features(met)
    assert met["notices"] == [NOTE, "notifications/tools/list_changed"]
    if version == MODERN:
        assert met["honored"] == {"toolsListChanged": True, "resourceSubscriptions": [NOTE]}
