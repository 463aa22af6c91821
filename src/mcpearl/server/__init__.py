"""The server role: registries, dispatch, context, subscriptions."""
