"""The sizes and codes that both ends of a file share."""

from xbus.rpc.items import ITEM_HEADER_BYTES

_BLOCK_BYTES = 4096

PIECE_BYTES = 4 * 1024 * 1024 - _BLOCK_BYTES - ITEM_HEADER_BYTES
"""Bytes of a piece at the most. Larger ones cost fewer calls, commits and syncs, and more memory at each hop.

With its header a piece fills whole blocks of a disk. Two pieces fit into a window of 8 MiB, with what each call adds:
where only one fits, each end waits for the other.
"""

BAD_FILE = "bad_file"
"""The code of items that are no file, or not a whole one."""
