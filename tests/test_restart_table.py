"""Every row of "Who restarts, what is lost" names a test that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SECTION = PAGE.split("## Who restarts, what is lost")[1].split("\n## ")[0]
ROWS = [line for line in SECTION.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_the_row_has_a_test(row: str) -> None:
    named = re.search(r"`(tests/[\w/.]+)::(test_\w+)`", row)
    assert named is not None
    file, function = named.groups()
    assert re.search(rf"^(async )?def {function}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_there_are_rows() -> None:
    assert len(ROWS) >= 15
