"""The subscriptions of the configuration: their rules, and their rows.

``rules`` is pure; ``stored`` reads and writes the table, beside the reader that the bus has of its own for each
subscription. Only the configuration imports them.
"""
