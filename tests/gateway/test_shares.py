"""Places that clients compete for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl import LimitReached
from mcpearl.gateway.shares import Shares


@given(st.integers(1, 50), st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=300))
def test_a_client_gets_at_most_half_of_what_the_others_leave(
    limit: int, steps: list[tuple[int, bool]]
) -> None:
    places, held = Shares(limit, "all taken", "max_places"), dict.fromkeys(range(4), 0)
    for client, takes in steps:
        if takes:
            others = sum(held.values()) - held[client]
            room = sum(held.values()) < limit and held[client] < max(1, (limit - others) // 2)
            if room:
                places.take(client)
                held[client] += 1
            else:
                with pytest.raises(LimitReached, match="`max_places`"):
                    places.take(client)
        elif held[client]:
            places.give_back(client)
            held[client] -= 1
        assert len(places) == sum(held.values()) <= limit


def test_a_client_that_came_late_gets_a_place() -> None:
    places = Shares(8, "all taken", "max_places")
    for client, share in (("ada", 4), ("bob", 2), ("eve", 1), ("zoe", 1)):
        for _ in range(share):
            places.take(client)
        with pytest.raises(LimitReached):
            places.take(client)
    places.give_back("ada")
    places.take("new")
