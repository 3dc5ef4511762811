"""The messages of verbs by which programs make event types, subscriptions, and API tokens for others."""
