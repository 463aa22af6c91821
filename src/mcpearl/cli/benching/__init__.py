"""Load on a server: calls, what is measured of them, and how that is shown."""
