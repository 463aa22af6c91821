"""Loading modules without the collector, and where what they define goes."""

import gc
import subprocess
import sys

from mcpearl.runtime.loading import Loading


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_is_loaded_is_old_at_once() -> None:
    code = """
import gc
from mcpearl import Server
young, old = (len(gc.get_objects(generation=number)) for number in (0, 2))
print(young < 1_000, old > 10_000, gc.isenabled(), gc.get_freeze_count())
"""
    assert run(code) == "True True True 0"


def test_what_the_application_froze_stays_frozen() -> None:
    code = """
import gc
gc.freeze()
before = gc.get_freeze_count()
from mcpearl import Server
print(gc.get_freeze_count() > before // 2, gc.isenabled())  # some of it is freed
"""
    assert run(code) == "True True"


COUNTED = """
import gc
from mcpearl.runtime.loading import Loading
counts, count = [], gc.get_freeze_count
gc.get_freeze_count = lambda: counts.append(count()) or counts[-1]
"""


def test_frozen_objects_are_not_counted_if_nothing_was_loaded() -> None:
    code = """
import json
with Loading():
    import json
print(len(counts))
with Loading():
    import mailbox
print(len(counts))
"""
    assert run(COUNTED + code) == "0\n1"


def test_the_objects_that_the_application_froze_are_counted_once() -> None:
    code = """
gc.freeze()
with Loading():
    import mailbox
with Loading():
    import xmlrpc.client
print(len(counts))
"""
    assert run(COUNTED + code) == "1"


def test_a_collector_that_is_off_stays_off() -> None:
    assert run("import gc; gc.disable(); from mcpearl import Server; print(gc.isenabled())") == (
        "False"
    )


def test_the_collector_runs_again_after_a_module_that_fails() -> None:
    try:
        with Loading():
            assert not gc.isenabled()
            raise ImportError
    except ImportError:
        assert gc.isenabled()
