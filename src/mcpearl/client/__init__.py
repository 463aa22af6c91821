"""The client: calls, callbacks, cache and subscriptions."""
