"""Files: as items of an event, and as text out of which items are read.

**Files as items.** The first names the file and its size, pieces follow, and the last has its hash.

The first item is the msgpack map ``{"file": name, "bytes": size}``. Each piece is bytes as they are. The last item is
the map ``{"sha256": digest}``, of all pieces together. Emitters write these by ``event.send_file``, recipients read
them by ``event.save``. A reader, or a program in another language, does the same by this form.

**Items out of text.** Commands, monitor and the gateway for HTTP read CSV by one reader. ``text_lines`` decodes
bytes and divides them into lines, ``csv_items`` makes rows of lines and items of rows.
"""

from xbus.files.csv_items import CsvForm, CsvItems, named_delimiter
from xbus.files.file_items import BAD_FILE, PIECE_BYTES, FileHead, IncomingFile, OutgoingFile
from xbus.files.text_lines import Entry, Unreadable

__all__ = [
    "BAD_FILE",
    "PIECE_BYTES",
    "CsvForm",
    "CsvItems",
    "Entry",
    "FileHead",
    "IncomingFile",
    "OutgoingFile",
    "Unreadable",
    "named_delimiter",
]
