"""Connections to SQLite and PostgreSQL: engines, schema, binary COPY, raw reads, and errors of drivers made ours.

It knows how to speak to a database and how segments are compressed in it, and nothing of envelopes. No transaction
outlives the block that opens it. Every other package of the journal may import it; programs beside the broker import
``connection``, ``grants``, ``place``, ``pool``, ``promises`` and ``schema``.

Face: ``binary_copy``, ``clearing_items``, ``compression``, ``connection``, ``engine``, ``foreign``, ``grants``,
``holding``, ``paging``, ``place``, ``postgres_session``, ``promises``, ``raw_reader``, ``rows``, ``schema`` and
``table_rows``.
"""
