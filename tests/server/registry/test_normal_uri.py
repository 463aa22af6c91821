"""Equivalent URIs have one form."""

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl.server.registry.normal_uri import normal_uri


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("note://master", "note://master"),
        ("note://m%61ster%7E%2D", "note://master~-"),
        ("a://%2f%2F%c3%a9\u00e9", "a://%2F%2F%C3%A9%C3%A9"),
        ("a://%2561", "a://%2561"),
        ("a://100%", "a://100%"),
        ("a://%4%zz%%41", "a://%4%zz%A"),
        ("a://%+1% 1%_1", "a://%+1% 1%_1"),
        ("a://%1%41", "a://%1%41"),
        ("a://%%411", "a://%%411"),
        ("a://%%41%41", "a://%A%41"),
        ("a://%%41g", "a://%Ag"),
        ("", ""),
    ],
)
def test_normal_forms(uri: str, normal: str) -> None:
    assert normal_uri(uri) == normal


@given(st.text(alphabet="a/%?#41eE9cC~\u00e9\U0001f642", max_size=30))
def test_a_normal_form_means_the_same_and_is_ascii(uri: str) -> None:
    normal = normal_uri(uri)
    assert normal.isascii()
    assert unquote_to_bytes(normal) == unquote_to_bytes(uri)
    assert normal_uri(normal) == normal
