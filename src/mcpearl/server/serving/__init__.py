"""Serving on wires: ports, clients, workers, shutdown."""
