"""Resources and their contents."""

import msgspec
import pytest

from mcpearl.types import (
    BlobResourceContents,
    ReadResourceResult,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextResourceContents,
    decode,
    encode,
)


def test_contents_are_text_or_blob() -> None:
    result = ReadResourceResult(
        contents=[
            TextResourceContents(uri="a:1", text=""),
            BlobResourceContents(uri="a:2", blob="AA==", mime_type="image/png"),
        ]
    )
    again = decode(ReadResourceResult, encode(result))
    assert [type(contents) for contents in again.contents] == [ResourceContents] * 2
    assert [(c.text, c.blob) for c in again.contents] == [("", None), (None, "AA==")]
    assert encode(again) == encode(result)


def test_contents_without_either_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"text.*blob"):
        decode(ReadResourceResult, b'{"contents":[{"uri":"a:1"}]}')
    with pytest.raises(ValueError, match=r"text.*blob"):
        ResourceContents(uri="a:1")


def test_a_template_has_its_own_uri_member() -> None:
    template = ResourceTemplate(uri_template="a:{x}", name="a")
    assert encode(template) == b'{"uriTemplate":"a:{x}","name":"a"}'


def test_a_resource_needs_uri_and_name() -> None:
    with pytest.raises(msgspec.ValidationError, match="name"):
        decode(Resource, b'{"uri":"a:1"}')
