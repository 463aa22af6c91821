"""A bounded dictionary never weighs more than its bound, and drops what is oldest."""

from hypothesis import given
from hypothesis import strategies as st

from mcpearl.runtime.bounded import BoundedDict


def test_values_by_name() -> None:
    values = BoundedDict[str](1000)
    values.put("a", "one", 3)
    assert "a" in values
    assert values.get("a") == "one"
    assert values.pop("a") == "one"
    assert values.get("a") is values.pop("a") is None
    assert len(values) == values.weight == 0


def test_the_oldest_makes_room() -> None:
    values = BoundedDict[int](3 * 165)
    for name in "abc":
        values.put(name, 1, 100)
    values.put("a", 2, 100)
    values.put("d", 1, 100)
    assert [name for name in "abcd" if name in values] == ["a", "c", "d"]


def test_a_value_over_the_bound_is_left_out_and_replaces_nothing_else() -> None:
    values = BoundedDict[int](200)
    values.put("a", 1, 100)
    values.put("b", 1, 1000)
    assert "a" in values
    assert "b" not in values


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 400), st.sampled_from(["put", "pop"]))
    )
)
def test_the_weight_is_that_of_the_entries_and_within_the_bound(
    steps: list[tuple[str, int, str]],
) -> None:
    values = BoundedDict[int](500)
    for name, weight, step in steps:
        if step == "put":
            values.put(name, weight, weight)
        else:
            values.pop(name)
        held = [name for name in "abcdef" if name in values]
        assert values.weight == sum((values.get(name) or 0) + 65 for name in held) <= 500
    values.clear()
    assert values.weight == len(values) == 0
