"""The client and the host for programs without an event loop: scripts and notebooks.

`client`, `task` and `host` are written by `tools/make_sync.py` from the asynchronous classes.
"""
