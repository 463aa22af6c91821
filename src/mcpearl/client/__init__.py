"""The client role: calls, callbacks, cache, subscriptions."""
