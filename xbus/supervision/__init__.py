"""Supervision: it pings recipients, and collects the problems that operators should look at.

It knows nothing of envelopes. The broker alone imports this package.
"""
