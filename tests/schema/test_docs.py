"""Every Python snippet of the schema documentation runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "schema.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippet(code):
    exec(compile(code, str(PAGE), "exec"), {"__name__": "snippet"})


def test_there_are_snippets():
    assert len(SNIPPETS) >= 5
