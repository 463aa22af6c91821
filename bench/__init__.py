"""Benchmarks: mcpearl beside the official Python SDK, FastMCP and the TypeScript SDK.

Run ``python -m bench`` from the root of the repository.
"""
