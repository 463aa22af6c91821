"""One browser for all tests of a process: to start it takes longer than most of them."""

from collections.abc import Iterator

import pytest

from tests.console.browser import Browser, running_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser
