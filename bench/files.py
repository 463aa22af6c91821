"""The limit of open files, which bounds how many connections can be measured."""

import resource

SPARE = 500  # open files of a process that are not connections


def allow_files() -> int:
    """Raise the limit of this process and its children; return how many connections fit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most - SPARE
