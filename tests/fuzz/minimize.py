"""Makes an input that breaks a promise as small as it gets, while it breaks the same one."""

import time
from collections.abc import Callable


def failure_of(check: Callable[[bytes], None], data: bytes) -> str | None:
    """Return what breaks, by its kind and place; None when nothing does."""
    try:
        check(data)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
        said = str(error) if isinstance(error, AssertionError) else ""
        return f"{type(error).__name__} {place} {said.split(':')[0]}"
    return None


def minimize(check: Callable[[bytes], None], data: bytes, seconds: float = 20.0) -> bytes:
    """Take out parts, half of the input first, then ever smaller ones."""
    same = failure_of(check, data)
    until = time.monotonic() + seconds
    size = max(1, len(data) // 2)
    while size and time.monotonic() < until:
        start, shorter = 0, False
        while start < len(data) and time.monotonic() < until:
            attempt = data[:start] + data[start + size :]
            if failure_of(check, attempt) == same:
                data, shorter = attempt, True
            else:
                start += size
        if not shorter or size > len(data):
            size //= 2
    return data
