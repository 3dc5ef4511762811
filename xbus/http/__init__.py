"""The gateway: programs publish by HTTP, without ZeroMQ.

It turns each request into calls of the broker's front, by the core of our emitter. A program shows an API token, which
goes on as the token of each call: the broker decides about rights, and the gateway keeps nothing. It never reads the
database, and repeats calls only as an emitter does. ``program`` starts it; nothing else imports it.
"""
