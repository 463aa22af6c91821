"""Servers made of parts."""
