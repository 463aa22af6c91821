"""The blocks of the documentation: which there are, and what is in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "benchmarks"  # written by `python -m bench`
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if "_build" not in page.parts and GENERATED not in page.parents
    ),
    *sorted((ROOT / "examples").rglob("*.md")),
]
_BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<kind>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """One block of a page."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, found.start()) + 1, found["kind"].strip(), found["text"])
        for found in _BLOCK.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of_kind(*kinds: str) -> list[Block]:
    """Return all blocks of these kinds."""
    return [block for block in BLOCKS if block.kind in kinds]


def python_of(page: str, number: int = 0) -> str:
    """Return a block of Python of a page."""
    return [block.text for block in of_kind("python") if block.page == page][number]


def fits(shown: str, written: str) -> bool:
    """Whether a text is what a page shows; `…` stands for anything."""
    expected = ".*".join(map(re.escape, shown.strip().split("…")))
    return re.fullmatch(expected, written.strip(), re.DOTALL) is not None
