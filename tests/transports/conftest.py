"""With processes asked for, only tests run that can have three of them (`make wires-store`)."""

from typing import Any

import pytest

from tests.deployment.forked import is_asked_for


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    if not is_asked_for():
        return
    kept = [item for item in items if _has_machines(item) and not item.get_closest_marker("inside")]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _has_machines(item: Any) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return "machines" in (params.get("store"), params.get("wire"))
