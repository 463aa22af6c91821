"""Lua scripts, which Redis runs atomically."""

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
"""Functions that every script can call: the time (the server's, unless a test passes another), a number
as text without loss of precision, and an expiry that is only ever extended."""


class Script:
    """A step that the server runs atomically.

    Args:
        text: The step, in Lua. The functions of `NOW` are put before it.
    """

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = NOW + text
        self.digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()
