"""Supervision: it pings recipients, and collects the problems that operators should look at.

The rules of liveness are pure. The broker alone imports this package.
"""
