"""What both roles need of asyncio and of the system: tasks, threads, timers, time and chance.

Nothing in here knows MCP.
"""
