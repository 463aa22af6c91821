"""Serving that starts again when a file changes, while clients stay connected.

The parent process has what clients hold on to: the listening sockets, or standard input and output. A
child serves. When a file changes, a new child loads it; only when that has worked is the old one stopped
and the new one told to go on. What cannot be loaded leaves the old one serving.
"""
