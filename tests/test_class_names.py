"""A name means one thing: no class has the name of another, with or without an underscore.

Nor has a type that is made by an assignment, unless it is the same type.
"""

import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "mcpearl"
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
TYPE = re.compile(r"^(_?[A-Z]\w*[a-z]\w*) = (?!TypeVar|ParamSpec)(.+)", re.MULTILINE)


def test_no_two_classes_have_the_same_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for name in CLASS.findall(file.read_text()):
            homes[name.lstrip("_")].append(f"{file.relative_to(SOURCE)}")

    assert len(homes) > 1000
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_no_assigned_type_is_another_one_in_another_module() -> None:
    meanings: dict[str, dict[str, str]] = defaultdict(dict)
    for file in SOURCE.rglob("*.py"):
        text, home = file.read_text(), f"{file.relative_to(SOURCE)}"
        for name, meaning in TYPE.findall(text):
            meanings[name.lstrip("_")].setdefault(meaning, home)

    assert len(meanings) > 100
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}
