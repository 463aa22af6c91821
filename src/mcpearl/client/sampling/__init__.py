"""Ready-made answers to sampling: a server's question goes to a model of a provider."""
