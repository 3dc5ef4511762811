"""Other message brokers with the same work as the bus: ``python -m benchmarks.peers``.

One process sends messages of 200 bytes, each awaited until the server says that it has it; another takes them and
acknowledges. Each server is started privately on loopback, with its data on the same disk, and each client is the usual
one for asyncio. A server that this machine lacks is left out, and a line on standard error says so.

A new peer is a module with a server and a client, and an entry in ``benchmarks.peers.known``.
"""
