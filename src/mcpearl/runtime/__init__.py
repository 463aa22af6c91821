"""What clients and servers need of asyncio: tasks, threads, timers, coalescing."""
