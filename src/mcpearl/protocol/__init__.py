"""The Model Context Protocol without I/O.

Bytes and messages go in, events and bytes come out. Nothing here knows an event loop, a socket or
a clock: whoever drives it passes the time in. Every rule of the protocol lives in this package.
"""
