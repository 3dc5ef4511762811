"""Files as items of an event: the first names the file and its size, pieces follow, and the last has its hash.

The first item is the msgpack map ``{"file": name, "bytes": size}``. Each piece is bytes as they are. The last item is
the map ``{"sha256": digest}``, of all pieces together. Emitters write these by ``event.send_file``, recipients read
them by ``event.save``. A reader, or a program in another language, does the same by this form.
"""

from xbus.files.form import BAD_FILE, PIECE_BYTES
from xbus.files.incoming import FileHead, IncomingFile
from xbus.files.outgoing import OutgoingFile

__all__ = ["BAD_FILE", "PIECE_BYTES", "FileHead", "IncomingFile", "OutgoingFile"]
