"""How deeply JSON may be nested, in every version of Python.

Parsers stop at the interpreter's recursion limit, which differs from version to version. This
limit is the same everywhere, for received and for sent messages.
"""

from itertools import accumulate

MAX_DEPTH = 128
"""Levels of arrays and objects, counting the message itself."""

SHALLOW = 2 * MAX_DEPTH + 1
"""Bytes in which JSON cannot be too deep: each level takes two."""

SHALLOW_OBJECTS = 5 * MAX_DEPTH + 1
"""Bytes in which JSON without arrays cannot be too deep: each level, `{"":` and `}`, takes five."""
ARRAY = ord("[")  # as a number, which is found in bytes faster than bytes are

_MORE = MAX_DEPTH + 1
_CHUNK = 64 * 1024
# Brackets as signed bytes: how far each leads up or down.
_UP, _DOWN = 1, 255
_STEPS = bytes.maketrans(b"[{]}", bytes([_UP, _UP, _DOWN, _DOWN]))
_OTHERS = bytes(set(range(256)) - set(b'[]{}"'))
_LEAF = bytes([_UP, _DOWN])
_TWINS = [
    (bytes([step, step]), bytes([2 * step % 256]))
    for size in (1, 2, 4, 8, 16, 32)
    for step in (size, 256 - size)
]


def is_too_deep(message: bytes) -> bool:
    """Whether JSON is nested deeper than `MAX_DEPTH`; without meaning for what is not JSON.

    Linear in the message, and close to free for one that is short or has few brackets.
    """
    size = len(message)
    if size <= SHALLOW or (size <= SHALLOW_OBJECTS and ARRAY not in message):
        return False
    # Removing up to so many brackets is several times faster than counting them.
    without = len(message.replace(b"{", b"", _MORE)) + len(message.replace(b"[", b"", _MORE))
    return 2 * size - without > MAX_DEPTH and _height(_steps(message)) > MAX_DEPTH


def _steps(message: bytes) -> bytes:
    """Leave one byte per bracket that is not inside of a string."""
    if b"\\" in message:
        # In this order: a backslash that is itself escaped does not escape a quote.
        message = message.replace(b"\\\\", b"").replace(b'\\"', b"")
    steps = message.translate(_STEPS, _OTHERS)
    # Two quotes side by side enclose nothing, or join two strings: what is inside stays inside.
    steps = steps.replace(b'""', b"")
    outside: list[bytes] = []
    within = 0
    for start in range(0, len(steps), _CHUNK):  # many short pieces at once would take much memory
        pieces = steps[start : start + _CHUNK].split(b'"')
        outside.append(b"".join(pieces[within::2]))
        within ^= len(pieces) % 2 == 0
    return b"".join(outside)


def _height(steps: bytes) -> int:
    """Return the greatest height that the steps reach; each pass shortens them, so there are few."""
    removed = 0
    while removed < 4 and _LEAF in steps:
        steps = steps.replace(_LEAF, b"")  # every branch is one level shorter now
        removed += 1
    for twins, one in _TWINS:
        steps = steps.replace(twins, one)
    return removed + max(accumulate(memoryview(steps).cast("b")), default=0)
