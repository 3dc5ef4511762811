"""Identifiers of envelopes and events, and tokens of sessions; time and randomness are handed in."""

import base64
import functools
import hashlib
import hmac
import os
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from xbus.clock import Clock, SystemClock

RandomBytes: TypeAlias = Callable[[int], bytes]

TOKEN_BYTES = 32
UUID_BYTES = 16
LONGEST_UUID = 36
"""Characters; nothing longer is parsed, or kept."""

_VARIANT = {f"{digit:x}": f"{8 | digit & 3:x}" for digit in range(16)}
"""By a random digit the one that says which kind of UUID it is, and keeps the two lower bits."""


_VERSION_7 = bytes((0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0))
_RANDOM_BITS = bytes((0, 0, 0, 0, 0, 0, 0x0F, 0xFF, 0x3F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF))
"""The bits of a UUID of version 7 that are left to chance."""
_MILLISECONDS = bytes((0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
"""The place of its time."""

_VERSION_5 = bytes((0, 0, 0, 0, 0, 0, 0x50, 0, 0x80, 0, 0, 0, 0, 0, 0, 0))
_DIGEST_BITS = bytes((*(0xFF,) * 6, 0x0F, 0xFF, 0x3F, *(0xFF,) * 7))
"""The bits of a UUID of version 5 that come from the hash."""


@functools.lru_cache(maxsize=64)
def _layout(number: int) -> tuple[int, int, int]:
    """Give the bits of so many UUIDs of version 7 behind each other: those of chance, of the version, and of time."""
    random_bits, version, milliseconds = (
        int.from_bytes(bits * number, "big") for bits in (_RANDOM_BITS, _VERSION_7, _MILLISECONDS)
    )
    return random_bits, version, milliseconds


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
        """Make a time-ordered UUID, version 7 of RFC 9562: 48 bits of milliseconds, then 74 random bits."""
        milliseconds = int(self._clock.now().timestamp() * 1000)
        value = (milliseconds << 80) | int.from_bytes(self._random_bytes(10), "big")
        value = (value & ~(0xF << 76)) | (7 << 76)
        value = (value & ~(0x3 << 62)) | (2 << 62)
        return uuid.UUID(int=value)

    def new_text(self) -> str:
        """Make a UUID as ``new`` does, written out; a ``uuid.UUID`` in between would take twice the time."""
        time = f"{int(self._clock.now().timestamp() * 1000):012x}"
        rest = self._random_bytes(10).hex()
        return f"{time[:8]}-{time[8:]}-7{rest[1:4]}-{_VARIANT[rest[4]]}{rest[5:8]}-{rest[8:]}"

    def new_bytes(self, number: int) -> list[bytes]:
        """Make so many UUIDs as ``new`` does, of 16 bytes each, of one moment; all of them by one arithmetic."""
        random_bits, version, milliseconds = _layout(number)
        chance = int.from_bytes(self._random_bytes(UUID_BYTES * number), "big") & random_bits
        return _cut(chance | version | int(self._clock.now().timestamp() * 1000) * milliseconds, number)

    def token(self) -> str:
        """Make a session token that nobody can guess: 256 random bits in URL-safe text."""
        return base64.urlsafe_b64encode(self._random_bytes(TOKEN_BYTES)).rstrip(b"=").decode()

    def hex_token(self) -> str:
        """Make a token that nobody can guess and everybody can type: 192 random bits in digits and lower case."""
        return self._random_bytes(24).hex()


KEYS = uuid.UUID("6f1f6d2e-6a53-5c0b-9d0e-5b1c4f3a7e42")
"""The namespace of the ids of envelopes that their emitters gave a key. It never changes: what was sent under a key
long ago must be found by it."""


def keyed_envelope_id(emitter_id: int, key: str, generation: int = 0) -> uuid.UUID:
    """Compute the id of the envelope to which an emitter gives a key.

    Args:
        key: without a zero character.
        generation: the number of earlier envelopes with this key that were cancelled.
    """
    name = f"{emitter_id}\0{key}"
    return uuid.uuid5(KEYS, f"{name}\0{generation}" if generation else name)


def keyed_ids(emitter_ids: Sequence[int], keys: Sequence[str]) -> tuple[list[bytes], list[bytes]]:
    """Compute the ids of the first envelopes with keys of emitters, and of their only events."""
    names = [f"{emitter_id}\0{key}".encode() for emitter_id, key in zip(emitter_ids, keys, strict=True)]
    envelope_ids = _computed(map(KEYS.bytes.__add__, names))
    return envelope_ids, _computed([each + b"1" for each in envelope_ids])


def _computed(names: Iterable[bytes]) -> list[bytes]:
    """Compute UUIDs of version 5 (RFC 9562); objects of them take twice the time.

    Args:
        names: each behind its namespace.
    """
    digests = [hashlib.sha1(each, usedforsecurity=False).digest()[:UUID_BYTES] for each in names]
    number = len(digests)
    kept = int.from_bytes(b"".join(digests), "big") & int.from_bytes(_DIGEST_BITS * number, "big")
    return _cut(kept | int.from_bytes(_VERSION_5 * number, "big"), number)


def _cut(made: int, number: int) -> list[bytes]:
    """Cut so many UUIDs out of the number that they are together."""
    return [*struct.unpack(f"{UUID_BYTES}s" * number, made.to_bytes(UUID_BYTES * number, "big"))]


REPLAYS = uuid.UUID("0b0c5f0e-97c1-5d6b-8a53-3f6d0e7a9b14")
"""The namespace of the ids of envelopes that a replay makes. It never changes: a replay that was broken off must find
what it made before."""


def replayed_envelope_id(origin_id: uuid.UUID, role_id: int, event_type_id: int, replay: str) -> uuid.UUID:
    """Compute the id of the envelope that brings events of another envelope to a role once more.

    Args:
        replay: the name of the replay. Each name gives each envelope to a role once.
    """
    return uuid.uuid5(REPLAYS, f"{origin_id}\0{role_id}\0{event_type_id}\0{replay}")


def numbered_event_id(envelope_id: uuid.UUID, number: int) -> uuid.UUID:
    """Compute the id of the event of this number, from 1, in an envelope with a computed id.

    It is the same for everybody who sends the envelope again.
    """
    return uuid.uuid5(envelope_id, str(number))


COMPUTED_VERSION = 5
"""The version of the UUIDs that the bus computes."""


def is_computed(made: uuid.UUID) -> bool:
    """Check whether an id is of the kind that the bus computes, and so can be foretold."""
    return made.version == COMPUTED_VERSION


def format_uuid(made: bytes) -> str:
    """Write a UUID of 16 bytes out, as ``str`` writes a ``uuid.UUID``. To make one would take three times as long."""
    digits = made.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


DIGITS = struct.Struct("8s4s4s4s12s")
"""The digits of a UUID between its hyphens (RFC 9562)."""


def texts_of(ids: Iterable[bytes]) -> list[str]:
    """Write ids as ``format_uuid`` does; no code of Python runs for each."""
    digits = b"".join(ids).hex().encode()
    return b" ".join(map(b"-".join, DIGITS.iter_unpack(digits))).decode().split()


def token_hash(token: str) -> bytes:
    """Hash a token by SHA-256; a token has 256 random bits, so a plain hash reveals nothing."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def proof_of(of_token: bytes, challenge: bytes) -> bytes:
    """Compute the proof that somebody knows the hash of a token: HMAC-SHA-256 (RFC 2104), 32 bytes.

    Args:
        of_token: the hash, which is the key.
        challenge: chosen by whoever wants the proof.
    """
    return hmac.digest(of_token, challenge, "sha256")


def parse_uuid(text: object) -> uuid.UUID | None:
    """Read the UUID in ``text``, or None if it has none. It is kept, as the calls of an envelope repeat it."""
    return _kept(text) if isinstance(text, str) and len(text) <= LONGEST_UUID else None


def parse_new_uuid(text: str) -> uuid.UUID | None:
    """As :func:`parse_uuid`, of an id that may never come again."""
    if len(text) > LONGEST_UUID:
        return None
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


_kept = functools.lru_cache(maxsize=1024)(parse_new_uuid)
