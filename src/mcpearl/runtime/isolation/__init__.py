"""Processes that run functions apart from this one: how they are started, confined, fed and ended."""
