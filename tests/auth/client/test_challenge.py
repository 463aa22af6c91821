"""Reading `WWW-Authenticate`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl.auth.client.challenge import (
    Challenge,
    Demand,
    parse_challenges,
    read_demand,
    scopes_in,
)


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        ("", []),
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="x"', [("bearer", {"realm": "x"})]),
        ('bearer a=b, c="d e"', [("bearer", {"a": "b", "c": "d e"})]),
        (
            'Bearer scope="a b",error=invalid_token',
            [("bearer", {"scope": "a b", "error": "invalid_token"})],
        ),
        (
            'Basic realm="x", Bearer scope="s"',
            [("basic", {"realm": "x"}), ("bearer", {"scope": "s"})],
        ),
        ("Negotiate, Bearer", [("negotiate", {}), ("bearer", {})]),
        ('DPoP algs="ES256 PS256", Bearer', [("dpop", {"algs": "ES256 PS256"}), ("bearer", {})]),
        (
            r'Bearer x="a \"quoted\" word, with = and ,"',
            [("bearer", {"x": 'a "quoted" word, with = and ,'})],
        ),
        ('Bearer a = "b" , c = d', [("bearer", {"a": "b", "c": "d"})]),
        ('Bearer A="first", a="second"', [("bearer", {"a": "first"})]),
        ('Bearer a="never closed', [("bearer", {})]),
        ("=?, Bearer", [("bearer", {})]),
    ],
)
def test_headers(header: str, challenges: list[tuple[str, dict[str, str]]]):
    found = parse_challenges(header)
    assert found[: len(challenges)] == [Challenge(*each) for each in challenges]


@given(st.text())
def test_any_header_is_read(header: str):
    assert all(each.scheme for each in parse_challenges(header))
    assert read_demand({"www-authenticate": header}) is not None


def test_a_long_header_is_read():
    """In time that grows with its length, or the test runs into its timeout."""
    for header in ('"' * 60_000, "a=" * 30_000, "a " * 30_000, 'a="' + "\\" * 60_000):
        assert all(each.scheme for each in parse_challenges(header))


def test_a_token_that_is_not_a_challenge_is_passed_over_as_a_whole():
    assert parse_challenges("Bearer " + "a" * 4000 + "(, Basic") == [
        Challenge("bearer", {}),
        Challenge("basic", {}),
    ]


def test_what_follows_the_first_8_kib_is_not_read():
    header = "Bearer," + " " * (8 * 1024) + "Basic"
    assert parse_challenges(header) == [Challenge("bearer", {})]


def test_what_is_demanded():
    header = 'Bearer resource_metadata="https://mcp.example/m", scope="a b a", error="insufficient_scope"'
    assert read_demand({"www-authenticate": header}) == Demand(
        frozenset({"bearer"}), "insufficient_scope", ("a", "b"), "https://mcp.example/m"
    )
    assert read_demand({}) == Demand()
    assert read_demand({"www-authenticate": 'Basic scope="x"'}).scopes == ()


def test_scopes():
    assert scopes_in("a b  c\ta") == ("a", "b", "c")
    assert scopes_in(None) == ()
    assert len(scopes_in(" ".join(map(str, range(1000))))) == 200
