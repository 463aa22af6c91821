"""The Model Context Protocol without I/O.

Bytes and messages go in, events and bytes come out. This package does not know event loops, sockets
or clocks: its caller passes the time in. Every rule of the protocol lives here.
"""
