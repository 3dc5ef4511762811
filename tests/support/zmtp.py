"""Messages of ZMTP as their bytes, written down by the RFC: https://rfc.zeromq.org/spec/23."""

from collections.abc import Sequence

MORE, LONG = 1, 2


def encode_message(frames: Sequence[bytes]) -> bytes:
    """Encode a message."""
    encoded = b""
    for left, frame in zip(range(len(frames) - 1, -1, -1), frames, strict=True):
        flags, length = (LONG, 8) if len(frame) > 255 else (0, 1)
        encoded += bytes([flags | (MORE if left else 0)]) + len(frame).to_bytes(length, "big") + frame
    return encoded
