"""Servers made of parts: other servers and handlers, mounted under names, and what is changed of them."""
