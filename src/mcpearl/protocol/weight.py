"""How much memory a message takes once it is decoded, computed from its bytes without decoding it.

Small JSON becomes large objects: `{}` is two bytes of JSON and a dictionary of 64 bytes. The number of
values decides, and commas separate them. The estimate is too high for most messages.
"""

OBJECT = 192  # bytes of a dictionary with few entries, beside them
VALUE = 64  # bytes of a value and its place in a list or dictionary


def weight_of(message: bytes) -> int:
    """Return about how many bytes a message and what is decoded from it take together."""
    return len(message) + OBJECT * message.count(b"{") + VALUE * message.count(b",")
