"""The bots of the configuration: their rules, and their rows.

``rules`` is pure; ``stored`` reads and writes the tables, with the emitter as which each bot writes. Only the
configuration imports them.
"""
