"""What every test of isolated tools begins with."""

import psutil
import pytest

from tests.server.isolation.apps import EARLIER


@pytest.fixture(autouse=True)
def _earlier_processes() -> None:
    """Tell processes of other tests from those of this one."""
    EARLIER.clear()
    EARLIER.update(each.pid for each in psutil.Process().children(recursive=True))
