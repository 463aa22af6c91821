"""What clients and servers need beyond asyncio: supervision, threads, timers, limits, isolation."""
