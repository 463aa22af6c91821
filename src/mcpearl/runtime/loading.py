"""Loads modules without the collector of garbage, which would look at everything that they define.

Imports make much and no garbage. What is loaded goes to the oldest generation at once; otherwise each of
the younger ones would be searched with all of it in there, while a server starts.
"""

import gc
import importlib
import sys
from types import ModuleType

_OWN = 1_000  # objects; Python itself freezes a few hundred from 3.12 on, an application all it has
_application_froze = False  # some of its objects, once that has been noticed


class Loading:
    """While it is entered, the collector does not run.

    >>> with Loading():
    ...     from mcpearl.server.serving.run import run
    """

    __slots__ = ("_before", "_collecting")

    def __enter__(self) -> None:
        self._before = len(sys.modules)
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if not self._collecting:
            return
        if len(sys.modules) != self._before and not _has_frozen_objects():
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def _has_frozen_objects() -> bool:
    """Return whether the application froze objects, which have to stay so.

    To count them takes as long as to look at each: some 0.1 s for a million. So that is done once.
    """
    global _application_froze
    _application_froze = _application_froze or gc.get_freeze_count() >= _OWN
    return _application_froze


def load(module: str) -> ModuleType:
    """Import a module by its name."""
    with Loading():
        return importlib.import_module(module)
