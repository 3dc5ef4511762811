"""Calls subscribers: each batch of a subscription is posted to its URL, until the subscriber has taken it.

The gateway is a program of the subscription's reader: the broker shares ranges, keeps the bounds of batches, and knows
what is settled. Here is no store. ``service`` follows the subscriptions, serves each and measures how they are;
``client`` makes the calls, and looks where they go. Only ``program`` imports this package.
"""
