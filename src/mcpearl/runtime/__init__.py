"""What keeps both roles alive on an event loop: tasks, threads, timers, coalescing."""
