"""Transports: they move messages as bytes and do not know what a message means."""
