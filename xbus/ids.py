"""Identifiers of envelopes and events, and tokens of sessions; time and randomness are handed in."""

import base64
import functools
import hashlib
import os
import uuid
from collections.abc import Callable
from typing import TypeAlias

from xbus.clock import Clock, SystemClock

RandomBytes: TypeAlias = Callable[[int], bytes]

TOKEN_BYTES = 32


class Ids:
    """Makes identifiers.

    Args:
        clock: gives the time part, so that ids made later sort later and land side by side in an index.
        random_bytes: gives the rest; ``os.urandom`` in the daemon, a seeded source in a repeatable test.
    """

    def __init__(self, clock: Clock | None = None, random_bytes: RandomBytes = os.urandom) -> None:
        self._clock = clock or SystemClock()
        self._random_bytes = random_bytes

    def new(self) -> uuid.UUID:
        """A time-ordered UUID, version 7 of RFC 9562: 48 bits of milliseconds, then 74 random bits."""
        milliseconds = int(self._clock.now().timestamp() * 1000)
        value = (milliseconds << 80) | int.from_bytes(self._random_bytes(10), "big")
        value = (value & ~(0xF << 76)) | (7 << 76)
        value = (value & ~(0x3 << 62)) | (2 << 62)
        return uuid.UUID(int=value)

    def token(self) -> str:
        """A session token that can't be guessed: 256 random bits in URL-safe text."""
        return base64.urlsafe_b64encode(self._random_bytes(TOKEN_BYTES)).rstrip(b"=").decode()


def token_hash(token: str) -> bytes:
    """What is kept of a token: its SHA-256. A token has 256 random bits, so a plain hash gives nothing away."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def parse_uuid(text: object) -> uuid.UUID | None:
    """The UUID that ``text`` writes, or None where it writes none."""
    return _parsed(text) if isinstance(text, str) and len(text) <= 36 else None


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> uuid.UUID | None:
    # Kept, as the calls of an envelope all bear the same ids.
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
