"""Streamable HTTP as a client speaks it, and HTTP+SSE of 2024-11-05."""
