"""Streamable HTTP as a server speaks it, and HTTP+SSE of 2024-11-05."""
