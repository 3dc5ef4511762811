"""The sizes and codes that both ends of a file share."""

PIECE_BYTES = 4 * 1024 * 1024
"""Bytes of a piece at the most. Larger ones cost fewer calls, commits and syncs, and more memory at each hop."""

BAD_FILE = "bad_file"
"""The code of items that are no file, or not a whole one."""
