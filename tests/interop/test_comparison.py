"""What the comparison page says of the SDKs, seen with each of them: if one changes, so must the page."""

import re
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


@pytest.mark.parametrize("sdk", PYTHON)
@pytest.mark.parametrize("scene", SEEN)
def test_what_happens(scene: str, sdk: str):
    done = run([PYTHON[sdk], str(HERE / "comparison.py"), sdk, scene])
    assert done.stdout.strip().rpartition("\n")[2] == SEEN[scene][sdk], done.stderr


def test_the_page_has_every_scene():
    assert set(re.findall(r"^\| `(\w+)`:", PAGE.read_text(), re.MULTILINE)) == set(SEEN)
