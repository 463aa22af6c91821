"""Time for the tests of stores."""

from collections.abc import Iterator

import pytest

from mcpearl.runtime.clock import SystemSource, use
from tests.stores.suite import StillClock


@pytest.fixture
def clock() -> Iterator[StillClock]:
    """Time that stands still unless it is advanced."""
    still = StillClock()
    use(still)
    yield still
    use(SystemSource)
