"""Linux system calls that Python has no function for."""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Change a setting of this process.

    Raises:
        OSError: The system does not have it.
    """
    checked(_libc.prctl(option, value, 0, 0, 0))


def unshare(flags: int) -> None:
    """Leave namespaces for new ones.

    Raises:
        OSError: It is not allowed.
    """
    checked(_libc.unshare(flags))


def syscall(number: int, *arguments: object) -> int:
    """Make a system call by its number.

    Raises:
        OSError: It failed.
    """
    return checked(_libc.syscall(ctypes.c_long(number), *arguments))


def checked(result: int) -> int:
    """Raise for a result below 0."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
