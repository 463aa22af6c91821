"""What outlives a request: sessions, events, tasks, and the bus between processes.

Each kind is one small protocol in a file of its own (`sessions`, `events`, `tasks`, `state`, `rates`,
`proofs`, `bus`) that states what callers rely on. The `memory_*` modules keep everything in this process,
the `sqlite_*` modules keep tasks in a file, and the `redis_*` modules serve a deployment on many
machines; `unix_bus` joins the workers of one machine. All implementations of a kind pass the same tests
(`tests/stores/`).
"""
