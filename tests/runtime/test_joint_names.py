"""Names over many servers: safe, unique, stable, and never in the way of one another."""

import random
import re

import pytest

from mcpearl.runtime.joint_names import NameTable, joint_name

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.parametrize(
    ("server", "name", "joint"),
    [
        ("weather", "forecast", "weather__forecast"),
        ("my_server", "do_it-now", "my_server__do_it-now"),
        ("a", "_b", "a___b"),
        ("s" * 30, "t" * 32, "s" * 30 + "__" + "t" * 32),
    ],
)
def test_what_is_safe_is_kept(server: str, name: str, joint: str) -> None:
    assert joint_name(server, name) == joint


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("a_", "b"),
        ("a__b", "c"),
        ("my server", "get weather"),
        ("wetter.ü", "größe"),
        ("日本", "天気"),
        ("", ""),
        ("s" * 64, "t"),
        ("s", "t" * 10_000),
        ("s", "a/b.c:d"),
        ("s", "\ud800"),
    ],
)
def test_everything_else_gets_a_digest(server: str, name: str) -> None:
    joint = joint_name(server, name)
    assert SAFE.fullmatch(joint)
    assert "__" not in joint
    assert joint == joint_name(server, name)


def test_names_that_look_alike_stay_apart() -> None:
    pairs = [("a", "b__c"), ("a__b", "c"), ("a_", "b"), ("a", "_b"), ("a b", "c"), ("a.b", "c")]
    assert len({joint_name(*pair) for pair in pairs}) == len(pairs)


def test_any_names_are_safe_and_unique() -> None:
    chance = random.Random(7)
    pairs = {
        tuple("".join(chance.choices("ab_- ü", k=chance.randint(0, 40))) for _ in range(2))
        for _ in range(5000)
    }
    table = NameTable()
    joints = set()
    by_server: dict[str, list[str]] = {}
    for server, name in pairs:
        by_server.setdefault(server, []).append(name)
    for server, names in by_server.items():
        joints |= set(table.put(server, names).values())
    assert len(joints) == len(pairs) == len(table)
    for joint in joints:
        assert SAFE.fullmatch(joint)
        found = table.find(joint)
        assert found in pairs
        assert table.of(*found) == joint


def test_names_stay_when_servers_come_and_go() -> None:
    table = NameTable()
    before = table.put("a", ["x", "y z"])
    table.put("b", ["x", "y z"])
    table.remove("b")
    assert table.put("a", ["new", "y z", "x"]) == {**before, "new": "a__new"}
    assert table.put("a", ["x"]) == {"x": "a__x"}
    assert table.find("a__new") is None
    table.remove("a")
    table.remove("a")
    assert len(table) == 0


def test_a_name_that_is_taken_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = joint_name

    def colliding(server: str, name: str, attempt: int = 0) -> str:
        return plain(server, name, attempt) if attempt else "same"

    monkeypatch.setattr("mcpearl.runtime.joint_names.joint_name", colliding)
    table = NameTable()
    first = table.put("a", ["x"])["x"]
    second = table.put("b", ["x"])["x"]
    assert first == "same"
    assert second != first
    assert table.find(second) == ("b", "x")
