"""What a test had logged, as it is looked through when the test is over."""

import pytest


def said_in(caplog: pytest.LogCaptureFixture) -> str:
    """Everything of setup and test; `caplog.text` has by then only what came after.

    Not what the library says that some tests play a client with.
    """
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    return "\n".join(
        record.getMessage() for record in records if record.name != "websockets.client"
    )
