"""A testing kit."""
