"""`inspect`: what a server offers, and what hosts will stumble over."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mcpearl.cli.findings import Objection, findings
from mcpearl.cli.offered import ServerOffer
from mcpearl.types.base import Implementation
from mcpearl.types.tools import Tool
from tests.cli.running import WEATHER, Screen, Serving, mcpearl

GOOD: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "description": "The first."}},
}


def found(tools: list[Tool]) -> list[Objection]:
    info = Implementation(name="n", version="1.0.0")
    return findings(ServerOffer(tools=tools), info, "Instructions.")


def tool(name: str = "good", schema: dict[str, Any] = GOOD, **members: Any) -> Tool:
    return Tool(**{"name": name, "input_schema": schema, "description": "Does it.", **members})


def of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"description": "x", **schema}}}


def test_nothing_is_found_where_nothing_is_wrong():
    assert found([tool()]) == []


@pytest.mark.parametrize(
    ("wrong", "grade", "says"),
    [
        (tool("has space"), "error", "1 to 128"),
        (tool("with.dot"), "warning", "1 to 64"),
        (tool("n" * 65), "warning", "1 to 64"),
        (tool("n" * 60), "note", "too long for Cursor"),
        (tool(description=None), "warning", "no description"),
        (tool(description="x" * 2000), "warning", "2,000 characters"),
        (tool(schema={"type": "string"}), "error", "must have type object"),
        (
            tool(schema={"type": "object", "anyOf": [{"type": "object"}]}),
            "error",
            "`anyOf` at the top",
        ),
        (tool(schema={"type": "object", "properties": {"a b": {}}}), "error", "argument 'a b'"),
        (tool(schema=of({"type": "array"})), "warning", "an array without `items`"),
        (tool(schema=of({"type": ["string", "integer"]})), "warning", "several types"),
        (tool(schema=of({"enum": [1, 2]})), "warning", "an enum of more than text"),
        (tool(schema=of({"type": "no-such-type"})), "error", "inputSchema"),
        (tool(schema=of({"pattern": "("})), "error", "inputSchema"),
        (tool(schema=of({"default": "x" * 9000})), "warning", "tokens"),
        (tool(schema={"type": "object", "properties": {"a": {}}}), "note", "no description of a"),
        (tool(output_schema={"type": "array"}), "note", "outputSchema is not an object"),
    ],
)
def test_what_hosts_stumble_over(wrong: Tool, grade: str, says: str):
    assert any(each.grade == grade and says in each.text for each in found([wrong])), found([wrong])


def test_too_many_and_twice():
    assert found([tool(), tool()])[0].text == "it is there 2 times"
    assert "Cursor" in found([tool(f"t{n}") for n in range(50)])[0].text
    assert found([tool(f"t{n}") for n in range(200)])[0].grade == "error"


def test_a_schema_without_end_is_looked_at_to_some_depth():
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    assert any("nested" in each.text for each in found([tool(schema=deep)]))


def test_the_report(tmp_path: Path):
    report = mcpearl("inspect", WEATHER, "--json").json
    assert report["server"] == {"name": "weather", "version": "1.0.0"}
    assert report["protocol"]["version"] == "2026-07-28"
    assert report["extensions"] == ["io.modelcontextprotocol/tasks"]
    assert report["tokens"]["tools"]["forecast"] > 20
    assert {"connect", "tools", "ping"} <= report["timings_ms"].keys()
    assert all(each["grade"] == "note" for each in report["problems"])
    file = tmp_path / "bad.py"
    file.write_text(
        "from mcpearl import Server\napp = Server('bad')\n@app.tool\ndef undocumented(): ...\n"
    )
    assert mcpearl("inspect", file).code == 0
    assert mcpearl("inspect", file, "--check").code == 1


def test_the_report_on_a_terminal():
    with Screen("inspect", WEATHER, "--versions") as screen:
        assert screen.ended() == 0
    for words in ("weather 1.0.0", "2024-11-05  yes", "2026-07-28  yes", "tools (", "problems ("):
        assert words in screen.text
    assert "versions      2024-11-05  yes\n                2025-03-26  yes" in screen.text


SILENT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] == "initialize":
        answer["result"] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "silent", "version": "1"},
        }
    else:
        answer["error"] = {"code": -32601, "message": "unknown"}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"""


def test_a_server_that_refuses_pings_is_still_shown(tmp_path: Path):
    (tmp_path / "silent.py").write_text(SILENT)
    done = mcpearl("inspect", f"{sys.executable} silent.py", cwd=tmp_path)
    assert (done.code, "✗ server: it refuses `ping`: unknown" in done.out) == (0, True), done.err


def test_the_doctor_does_not_blame_silence_on_a_server_that_says_why_it_ended(tmp_path: Path):
    (tmp_path / "ends.py").write_text("raise SystemExit('set API_KEY')")
    done = mcpearl("doctor", f"{sys.executable} ends.py", cwd=tmp_path)
    assert done.code == 1
    assert "set API_KEY" in done.out
    assert "✗ stdout" not in done.out


def test_the_doctor_says_why_a_certificate_is_not_trusted(certificate: Path):
    with Serving("run", WEATHER, "--http", "--port", "0", "--certificate", certificate) as serving:
        done = mcpearl("doctor", serving.url)
        assert done.code == 1
        assert "the certificate is not trusted: self-signed certificate" in done.out
        assert "SSL_CERT_FILE=cert.pem" in done.out
        assert mcpearl("ping", serving.url, SSL_CERT_FILE=str(certificate)).code == 0


def test_the_doctor_tells_a_server_that_says_nothing():
    done = mcpearl("doctor", "sleep 90", "--timeout", "1")
    assert done.code == 1
    assert "✗ handshake: `initialize` was not answered within 1 s" in done.out
    assert "✗ stdout: it writes nothing to stdout after `initialize`" in done.out
