"""Putting servers into the configuration files of hosts, and taking them out again.

A file is changed as text, so that comments, order and layout stay. The changed text is read again before
it is written: it must say what the file said, and the one change. A file that cannot be read stays as it
is.
"""
