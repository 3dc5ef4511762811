"""Items out of files, each with its line: CSV and JSON as they are, others by a descriptor.

A file's way through this package: ``ItemFile`` opens its ``Source`` and picks an ``EntryReader``, which makes an
``Entry`` of each row, record or element, good or bad. Nothing is kept but the current one.
"""
