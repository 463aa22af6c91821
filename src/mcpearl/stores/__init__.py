"""What outlives a request: sessions, events, tasks, and the bus between processes.

Each kind is one small protocol in a file of its own (`sessions`, `events`, `tasks`, `bus`) that states
what callers rely on. The `memory_*` modules keep everything in this process; `unix_bus` joins the
workers of one machine. Every implementation passes the same tests (`tests/stores/`).
"""
