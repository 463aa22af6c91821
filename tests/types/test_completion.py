"""Completion: what is completed, told by its type."""

import msgspec
import pytest

from mcpearl.types import (
    CompleteRequestParams,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
    decode,
    encode,
)


@pytest.mark.parametrize(
    ("ref", "wire"),
    [
        (PromptReference(name="brief"), b'{"type":"ref/prompt","name":"brief"}'),
        (ResourceTemplateReference(uri="a:{x}"), b'{"type":"ref/resource","uri":"a:{x}"}'),
    ],
)
def test_a_reference_is_told_by_its_type(
    ref: PromptReference | ResourceTemplateReference, wire: bytes
) -> None:
    params = CompleteRequestParams(
        ref=ref,
        argument=CompletionArgument(name="x", value="a"),
        context=CompletionContext(arguments={"y": "b"}),
    )
    assert wire in encode(params)
    assert decode(CompleteRequestParams, encode(params)) == params


def test_another_reference_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="ref/tool"):
        decode(
            CompleteRequestParams,
            b'{"ref":{"type":"ref/tool"},"argument":{"name":"x","value":""}}',
        )
