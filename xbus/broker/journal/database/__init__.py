"""Connections to SQLite and PostgreSQL: engines, schema, binary COPY, raw reads, and errors of drivers made ours.

It knows how a database is spoken to, and nothing of envelopes. Every other package of the journal may import it.
"""
