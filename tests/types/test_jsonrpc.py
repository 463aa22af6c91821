"""Envelopes, errors and the data that goes with them."""

import msgspec
import pytest

from mcpearl.types import (
    URL_ELICITATION_REQUIRED,
    ErrorObject,
    JSONRPCErrorResponse,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResultResponse,
    URLElicitationRequiredData,
    convert,
    decode,
    encode,
)


@pytest.mark.parametrize(
    ("type_", "wire"),
    [
        (JSONRPCRequest, b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x": 1}}'),
        (JSONRPCRequest, b'{"jsonrpc":"2.0","id":0,"method":"ping"}'),
        (JSONRPCNotification, b'{"jsonrpc":"2.0","method":"notifications/initialized"}'),
        (JSONRPCResultResponse, b'{"jsonrpc":"2.0","id":1,"result":{"x": [ ]}}'),
        (JSONRPCErrorResponse, b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}'),
    ],
)
def test_an_envelope_passes_its_payload_on_untouched(type_: type, wire: bytes) -> None:
    assert encode(decode(type_, wire)) == wire


def test_another_version_of_json_rpc_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="jsonrpc"):
        decode(JSONRPCRequest, b'{"jsonrpc":"1.0","id":1,"method":"ping"}')


def test_error_data_may_be_null_or_absent() -> None:
    assert encode(ErrorObject(code=1, message="m")) == b'{"code":1,"message":"m"}'
    assert encode(ErrorObject(code=1, message="m", data=None)) == (
        b'{"code":1,"message":"m","data":null}'
    )


def test_url_elicitation_data_keeps_what_it_does_not_know() -> None:
    error = decode(
        ErrorObject,
        b'{"code":-32042,"message":"m","data":{"retry":true,"elicitations":[{"mode":"url",'
        b'"message":"m","url":"https://a.example","elicitationId":"1"}]}}',
    )
    assert error.code == URL_ELICITATION_REQUIRED
    data = convert(URLElicitationRequiredData, error.data)
    assert data.elicitations[0].url == "https://a.example"
    assert data.extra == {"retry": True}
