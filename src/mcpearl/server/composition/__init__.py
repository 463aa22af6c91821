"""Servers made of parts: other servers and handlers that are mounted under names, and their rewrites."""
