"""A name means one thing: no class has the name of another class, with or without an underscore."""

import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "mcpearl"
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def test_no_two_classes_have_the_same_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for name in CLASS.findall(file.read_text()):
            homes[name.lstrip("_")].append(f"{file.relative_to(SOURCE)}")

    assert len(homes) > 1000
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
