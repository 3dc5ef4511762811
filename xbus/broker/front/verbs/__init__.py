"""The verbs of the front's socket: those of wire.md, and those that our own emitters call beside them.

A verb checks who calls and hands the call on; it decides nothing. Only ``parts`` imports this package.
"""
