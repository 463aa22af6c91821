"""A server's questions, told apart by their method."""

import msgspec
import pytest

from mcpearl.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestParams,
    InputRequiredResult,
    ListRootsRequest,
    decode,
    encode,
)


def test_questions_are_told_by_their_method() -> None:
    result = InputRequiredResult(
        result_type="input_required",
        input_requests={
            "who": ElicitRequest(params=ElicitRequestParams(message="Who?")),
            "where": ListRootsRequest(),
            "what": CreateMessageRequest(
                params=CreateMessageRequestParams(messages=[], max_tokens=1)
            ),
        },
        request_state="sealed",
    )
    assert encode(result) == (
        b'{"resultType":"input_required","inputRequests":{'
        b'"who":{"method":"elicitation/create","params":{"message":"Who?"}},'
        b'"where":{"method":"roots/list"},'
        b'"what":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}},'
        b'"requestState":"sealed"}'
    )
    assert decode(InputRequiredResult, encode(result)) == result


def test_a_question_of_another_kind_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="tools/call"):
        decode(InputRequiredResult, b'{"inputRequests":{"a":{"method":"tools/call"}}}')
