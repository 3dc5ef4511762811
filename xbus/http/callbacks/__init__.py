"""Calls subscribers: each batch of a subscription is posted to its URL, until the subscriber has taken it.

The gateway is a program of the subscription's reader: the broker shares ranges, keeps the bounds of batches, and knows
what is settled. Here is no store. ``service`` follows the subscriptions, ``calling`` serves one, ``client`` makes the
calls, ``addresses`` looks where they go, and ``look`` measures how subscriptions are. ``signing`` and ``formats`` are
pure. Only ``application`` imports this package.
"""
