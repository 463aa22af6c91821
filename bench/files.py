"""The limit of open files, which bounds how many connections can be measured."""

import resource

SPARE = 500  # files of a process that are not the connections counted


def allow_files() -> int:
    """Allow this process and what it starts what the system lets it; give how many connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most - SPARE
