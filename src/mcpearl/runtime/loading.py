"""Loads modules without the collector of garbage, which would look at everything that they define.

Imports make much and no garbage. What is loaded goes to the oldest generation at once; otherwise each of
the younger ones would be searched with all of it in there, while a server starts.
"""

import gc
import importlib
from types import ModuleType

_OWN = 1_000  # objects; Python itself freezes a few hundred from 3.12 on, an application all it has


class Loading:
    """While it is entered, the collector does not run.

    >>> with Loading():
    ...     from mcpearl.server.serving.run import run
    """

    __slots__ = ("_collecting",)

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if not self._collecting:
            return
        if gc.get_freeze_count() < _OWN:  # otherwise the application froze objects, which stay so
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def load(module: str) -> ModuleType:
    """Import a module by its name."""
    with Loading():
        return importlib.import_module(module)
