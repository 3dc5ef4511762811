"""The persons who use the monitor: it knows them by their sessions and tokens, and lets them in and out.

It never keeps a password or a token, and never decides about rights anywhere but here.
"""
