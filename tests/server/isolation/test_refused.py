"""Where the kernel refuses what the settings ask for, the server does not start, and says why."""

import os
import subprocess
import sys

import pytest

SERVER = """
from mcpearl import Files, Isolate, Server

app = Server("confined")

@app.tool(isolate={profile})
def work() -> int:
    return 1

app.run()
"""
NO_NAMESPACES = """
from pathlib import Path
from mcpearl.runtime.isolation.system import CLONE_NEWUSER, unshare

user, group = os.getuid(), os.getgid()
unshare(CLONE_NEWUSER)
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {user} 1")
Path("/proc/self/gid_map").write_text(f"0 {group} 1")
Path("/proc/sys/user/max_net_namespaces").write_text("0")
"""
NO_LAYERS = """
from mcpearl.runtime.isolation.landlock import restrict
from mcpearl import Files

for _ in range(16):  # as many as there may be on top of each other
    restrict(Files(write=["/"]))
"""


def refusal(before: str, profile: str) -> str:
    """Run a server after having this process refused something; return what it says."""
    code = f"import os, sys\ntry:\n{_indented(before)}except OSError as error:\n    sys.exit(77)\n"
    run = subprocess.run(
        [sys.executable, "-c", code + SERVER.format(profile=profile)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=os.getcwd(),  # noqa: PTH109
    )
    if run.returncode == 77:
        pytest.skip("this system does not let a process give that up")
    assert run.returncode == 1, run.stderr
    return run.stderr


def _indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


def test_no_namespace_for_the_network() -> None:
    said = refusal(NO_NAMESPACES, "Isolate(network=False)")
    assert "pool of `work`: a process cannot be cut off from the network" in said
    assert "No space left on device" in said  # what the kernel says
    assert "allow user namespaces, or leave `network` out" in said
    assert "Traceback" not in said


def test_no_landlock() -> None:
    said = refusal(NO_LAYERS, "Isolate(files=Files(write=[]))")
    assert "pool of `work`: a process cannot be kept to files" in said
    assert "Argument list too long" in said  # what the kernel says
    assert "leave `files` out" in said
    assert "Traceback" not in said


def test_no_way_to_keep_signals_in() -> None:
    said = refusal(NO_LAYERS, "Isolate(signals=False)")
    assert "pool of `work`: a process cannot be kept from sending signals" in said
    assert "leave `signals` out" in said
    assert "Traceback" not in said
