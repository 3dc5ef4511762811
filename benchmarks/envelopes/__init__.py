"""Small envelopes: what the bus does for an ordinary message, one item in one envelope.

Each module is a family of scenarios. The broker, the emitters and the consumers run in processes of their own; the rows
say what the broker's process takes for an envelope, and what the clients take, because all share the machine.
"""
