"""Scripts that Redis runs as one step."""

from hashlib import sha1

NOW = """
local function time_of(given)
    if given ~= '' then return tonumber(given) end
    local t = redis.call('TIME')
    return tonumber(t[1]) + tonumber(t[2]) / 1000000
end
local function exact(number) return string.format('%.17g', number) end
local function keep(key, seconds)
    local wanted = math.ceil(seconds * 1000)
    if redis.call('PTTL', key) < wanted then redis.call('PEXPIRE', key, wanted) end
end
"""
"""Functions that scripts begin with: the time (the server's, unless a test gives another), a number as
text that loses nothing, and an expiry that is only ever moved back."""


class Script:
    """A step that the server takes as a whole.

    Args:
        text: The step, in Lua. The functions of `NOW` stand before it.
    """

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = NOW + text
        self.digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()
