"""The server: registry, dispatch, context and subscriptions."""
