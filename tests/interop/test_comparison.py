"""What the comparison page says of the SDKs, seen with each of them: if one changes, so must the page."""

import functools
import re
import subprocess
import sys

import pytest

from tests.interop.peers import FASTMCP, HERE, run

PYTHON = {"mcpearl": sys.executable, "fastmcp": FASTMCP, "mcp": sys.executable}
PAGE = HERE.parents[1] / "docs" / "comparison.md"

SEEN = {
    "server_dies": {"mcpearl": "answered", "fastmcp": "failed", "mcp": "failed"},
    "stdout": dict.fromkeys(PYTHON, "answered, answered"),
    "text_for_a_number": {"mcpearl": "tool error", "fastmcp": "answered", "mcp": "answered"},
    "a_function_blocks": dict.fromkeys(PYTHON, "answered, answered"),
}


@functools.cache
def played(sdk: str) -> "subprocess.CompletedProcess[str]":
    """Have an SDK play all scenes, once."""
    return run([PYTHON[sdk], str(HERE / "comparison.py"), sdk])


@pytest.mark.parametrize("scene", SEEN)
@pytest.mark.parametrize("sdk", PYTHON)
def test_what_happens(scene: str, sdk: str):
    done = played(sdk)
    assert f"{scene}: {SEEN[scene][sdk]}" in done.stdout.splitlines(), done.stderr


def test_the_page_has_every_scene():
    assert set(re.findall(r"^\| `(\w+)`:", PAGE.read_text(), re.MULTILINE)) == set(SEEN)


# What the page says of the packages: where each part is, and where there is none.
PARTS = {
    "fastmcp": [
        "fastmcp.server.auth.oauth_proxy:OAuthProxy",
        "fastmcp.server.auth.providers.jwt:JWTVerifier",
        "fastmcp.server.auth.providers.jwt:StaticTokenVerifier",
        "fastmcp.server.auth.providers.introspection:IntrospectionTokenVerifier",
        "fastmcp.utilities.tests:HeadlessOAuth",
        "fastmcp.server.providers.openapi:OpenAPIProvider",
        "fastmcp.server.middleware.rate_limiting:RateLimitingMiddleware",
        "fastmcp.server.middleware.error_handling:RetryMiddleware",
        "fastmcp.server.middleware.response_limiting:ResponseLimitingMiddleware",
        "fastmcp.apps:",
        "fastmcp_tasks:",
    ],
    "mcp": [
        "mcp.server.auth.provider:TokenVerifier",
        "mcp.server.auth.provider:OAuthAuthorizationServerProvider",
        "mcp.client.session_group:ClientSessionGroup",
        "mcp.server.subscriptions:SubscriptionBus",
        "mcp.server.streamable_http:EventStore",
        "mcp.server.apps:Apps",
    ],
}
ABSENT = {
    "fastmcp": ["fastmcp.client.transports.ws", "fastmcp.client.transports.tcp"],
    "mcp": ["mcp.client.websocket", "mcp.server.websocket", "mcp.server.tasks", "mcp.client.tasks"],
}
TYPESCRIPT = {
    "ProxyOAuthServerProvider": "sdk/dist/esm/server/auth/providers/proxyProvider.d.ts",
    "WebSocketClientTransport": "sdk/dist/esm/client/websocket.d.ts",
    "TaskStore": "sdk/dist/esm/experimental/tasks/interfaces.d.ts",
    "EventStore": "sdk/dist/esm/server/webStandardStreamableHttp.d.ts",
    "ServerEventBus": "server/dist/index.d.mts",
    "ext-tasks": "ext-tasks/package.json",
}
FIND = """
import importlib, importlib.util, sys
for each in sys.argv[1:]:
    module, _, name = each.partition(":")
    try:
        found = importlib.import_module(module)
        print(each, not name or hasattr(found, name))
    except ModuleNotFoundError:
        print(each, False)
"""


@pytest.mark.parametrize("sdk", PARTS)
def test_what_the_packages_have(sdk: str):
    parts, absent = PARTS[sdk], ABSENT[sdk]
    done = run([PYTHON[sdk], "-c", FIND, *parts, *absent])
    expected = [f"{each} True" for each in parts] + [f"{each} False" for each in absent]
    assert done.stdout.splitlines() == expected, done.stderr
    page = PAGE.read_text()
    for each in parts:
        module, _, name = each.partition(":")
        assert f"`{name or module}`" in page


def test_what_the_typescript_packages_have():
    packages = HERE / "node" / "node_modules" / "@modelcontextprotocol"
    for name, file in TYPESCRIPT.items():
        assert name in (packages / file).read_text(), file
        assert f"`{name}`" in PAGE.read_text()


def test_the_commands_of_fastmcp():
    done = run([PYTHON["fastmcp"], "-m", "fastmcp.cli", "--help"])
    for name in (
        "run",
        "list",
        "call",
        "inspect",
        "discover",
        "install",
        "generate-cli",
        "project",
    ):
        assert re.search(rf"^\W*{name}\b", done.stdout, re.MULTILINE), done.stdout
