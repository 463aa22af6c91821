"""Restricts which files and processes a process may use, with the kernel's Landlock.

A right that was given up cannot be regained.
"""

import ctypes
import errno
import os
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mcpearl.runtime.isolation.profile import AnyPath, Files
from mcpearl.runtime.isolation.system import PR_SET_NO_NEW_PRIVS, prctl, syscall

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TRUNCATE = 1 << 14
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE  # rights that a file can have
_RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev/urandom", "/dev/zero")


_SIGNALS = 1 << 1
_SIGNALS_SINCE = 6  # version


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Return the version of Landlock that the kernel has.

    Raises:
        OSError: It has none.
    """
    return syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))


def restrict(files: Files | None, *, signals: bool = True) -> None:
    """Allow this process, and all that it starts, only these files from now on.

    Args:
        files: The files; None for all.
        signals: Whether it may send signals to, or inspect, processes other than those it starts.

    Raises:
        OSError: The kernel has no Landlock, or one that does not know signals.
    """
    known = version()
    rights = 0 if files is None else _RIGHTS_BY_VERSION[min(known, 3)]
    if not signals and known < _SIGNALS_SINCE:
        raise OSError(errno.ENOTSUP, f"its Landlock has version {known}")
    ruleset = _Ruleset(rights, 0, 0 if signals else _SIGNALS)
    descriptor = syscall(
        _CREATE, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), ctypes.c_uint32(0)
    )
    try:
        if files is not None:
            _allow_files(descriptor, files, rights)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        syscall(_RESTRICT, ctypes.c_int(descriptor), ctypes.c_uint32(0))
    finally:
        os.close(descriptor)


def _allow_files(ruleset: int, files: Files, rights: int) -> None:
    readable = ("/",) if files.read is None else (*files.read, *_own_files())
    for path in readable:
        _allow(ruleset, path, _READ & rights)
    for path in (*(files.write or ()), "/dev/null"):
        _allow(ruleset, path, rights)


def _own_files() -> Iterable[AnyPath]:
    """Return the files that the interpreter reads: its libraries, and modules that are loaded later."""
    found = {*sys.path, sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *_SYSTEM}
    return [each for each in found if each and Path(each).exists()]


def _allow(ruleset: int, path: AnyPath, rights: int) -> None:
    with suppress(FileNotFoundError):  # it has gone since it was checked
        beneath = os.open(Path(path), os.O_PATH | os.O_CLOEXEC)
        try:
            if not Path(path).is_dir():
                rights &= _OF_FILES
            rule = _PathBeneath(rights, beneath)
            syscall(
                _ADD,
                ctypes.c_int(ruleset),
                ctypes.c_int(_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
        finally:
            os.close(beneath)
