"""The clients of both TypeScript SDKs against our server, in the eras they know."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.demo_server import NOTE, PIXEL
from tests.interop.peers import DEMO_SERVER, HERE, LEGACY, MODERN, NODE, run, serving

CASES = [
    ("v1", "legacy", LEGACY[-1]),
    ("v2", "legacy", LEGACY[-1]),
    ("v2", "auto", MODERN),
    ("v2", MODERN, MODERN),
]


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """A server of this test's own: the command that starts it, or its URL."""
    if request.param == "stdio":
        yield DEMO_SERVER
        return
    with serving(DEMO_SERVER) as url:
        yield [url]


def walk(sdk: str, mode: str, target: list[str]) -> dict[str, Any]:
    done = run([NODE, str(HERE / "node" / "client.mjs"), sdk, mode, *target])
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert isinstance(met, dict)
    return met


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.parametrize(("sdk", "mode", "version"), CASES)
def test_walk(target: list[str], sdk: str, mode: str, version: str):
    met = walk(sdk, mode, target)
    assert met["errors"] == []  # what it received and could make no sense of
    assert met["version"] == version
    assert met["server"] == {"name": "demo", "version": "1.2.3", "title": "Demo"}
    assert met["instructions"] == "Try everything."

    assert len(met["tools"]) == 17 and met["tools"][:3] == ["add", "forecast", "echo"]
    assert met["add"]["structuredContent"] == {"result": 5} and text_of(met["add"]) == "5"
    assert met["forecast"]["structuredContent"] == {
        "city": "Lisbon",
        "days": ["sun", "sun"],
        "warm": True,
    }
    assert met["show"] == ["text", "image", "audio", "resource_link", "resource"]
    assert met["fail"]["isError"] and text_of(met["fail"]) == "failed: why not"
    assert met["unknown"] == {"code": -32602}

    assert met["resources"] == [NOTE, "demo://pixel"]
    assert met["templates"] == ["demo://{city}/weather", "demo://{city}/secret"]
    assert met["note"] == {"uri": NOTE, "mimeType": "text/plain", "text": "first"}
    assert b64decode(met["pixel"]["blob"]) == PIXEL
    assert json.loads(met["weather"]["text"]) == {"city": "Oslo", "sky": "snow"}
    # The second SDK shows its callers the modern code, whichever was sent.
    assert met["missing"] == {"code": -32002 if sdk == "v1" else -32602}

    assert met["prompts"] == ["brief", "dialogue", "personal", "visit"]
    (message,) = met["brief"]["messages"]
    assert message["content"]["text"] == "Give me a short weather briefing for Oslo."
    assert met["completion"] == {
        "values": ["Karl Johans gate", "Kirkeveien"],
        "total": 2,
        "hasMore": False,
    }

    assert met["progress"] == [[1, 3], [2, 3], [3, 3]]
    assert met["logs"] == [{"what": "news"}, "a problem"]

    assert text_of(met["book"]) == "booked 1: second class, insured True"
    assert text_of(met["pay"]) == "accept"
    assert text_of(met["consult"]) == "parrot-1: Yes."
    assert met["workplace"]["structuredContent"] == {"result": ["file:///srv/demo"]}
    assert text_of(met["survey"]) == "1 roots, Oslo, Yes."
    assert met["asked"][:4] == ["Where to?", "3 days in Oslo. Sure?", "Please pay.", "Nice?"]

    assert met["notices"] == [NOTE, "notifications/tools/list_changed"]
    if version == MODERN:
        assert met["honored"] == {"toolsListChanged": True, "resourceSubscriptions": [NOTE]}
