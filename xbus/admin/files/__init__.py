"""Items out of files, each with its line: CSV and JSON as they are, others by a descriptor.

A file's way through this package: ``ItemFile`` opens its ``Source`` and picks an ``EntryReader``, which makes an
``Entry`` of each row, record or element, good or bad. Nothing is kept but the current one.
"""

from xbus.admin.files.descriptor import Descriptor
from xbus.admin.files.descriptor_file import parse_descriptor, read_descriptor
from xbus.admin.files.item_file import CollectBadLines, ItemFile, SkipBadLines, StopAtBadLine
from xbus.admin.files.text import KINDS, STANDARD_INPUT, PlainForm
from xbus.files.entry import Entry

__all__ = [
    "KINDS",
    "STANDARD_INPUT",
    "CollectBadLines",
    "Descriptor",
    "Entry",
    "ItemFile",
    "PlainForm",
    "SkipBadLines",
    "StopAtBadLine",
    "parse_descriptor",
    "read_descriptor",
]
