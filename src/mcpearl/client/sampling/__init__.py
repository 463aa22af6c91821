"""Ready-made sampling callbacks, which pass a server's request to a provider's model."""
