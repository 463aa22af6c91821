"""Serves a server on its wires (transports with an address): ports, clients, workers, shutdown."""
