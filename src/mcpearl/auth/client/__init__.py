"""Logging in: tokens, grants, discovery and where they are kept."""
