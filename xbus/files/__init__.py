"""Files: as items of an event, and as text out of which items are read.

**Files as items.** The first names the file and its size, pieces follow, and the last has its hash.

The first item is the msgpack map ``{"file": name, "bytes": size}``. Each piece is bytes as they are. The last item is
the map ``{"sha256": digest}``, of all pieces together. Emitters write these by ``event.send_file``, recipients read
them by ``event.save``. A reader, or a program in another language, does the same by this form.

**Items out of text.** Commands, monitor and the gateway for HTTP read CSV by one reader. ``text_lines`` decodes
bytes and divides them into lines, ``csv_rows`` makes rows of lines, ``csv_items`` makes items of rows.
"""

from xbus.files.csv_items import CsvForm, CsvItems, named_delimiter
from xbus.files.entry import Entry, Unreadable
from xbus.files.form import BAD_FILE, PIECE_BYTES
from xbus.files.incoming import FileHead, IncomingFile
from xbus.files.outgoing import OutgoingFile

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
