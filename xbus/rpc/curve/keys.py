"""Key pairs of CURVE, and the files that keep them.

A key is a text of 40 characters, 32 bytes in Z85 (https://rfc.zeromq.org/spec/32). A file has the form of ZeroMQ's
certificates, so that czmq and pyzmq read it, too (https://rfc.zeromq.org/spec/4).
"""

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from xbus import private_files
from xbus.errors import ConfigurationError

KEY_LENGTH = 40
"""The characters of a key."""

MOST_FILE_BYTES = 64 * 1024
"""The most bytes of a key file that are read; a pair takes some 200."""

_RESERVED = frozenset("%&#+")
"""The characters of Z85 that mean something else within an address."""

_LINE = re.compile(r'^\s+(public|secret)-key\s*=\s*"([^"\n]*)"\s*$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public key, which others may know, and its secret key."""

    public: str
    secret: str = field(repr=False)


def new_pair() -> KeyPair:
    """Make a pair whose public key can be written into an address and a command as it is: one of seven pairs."""
    while True:
        public, secret = (key.decode("ascii") for key in zmq.curve_keypair())
        if _RESERVED.isdisjoint(public) and not public.startswith("-"):
            return KeyPair(public, secret)


def is_public_key(text: object) -> bool:
    """Check whether a text is a key in Z85."""
    if not isinstance(text, str) or len(text) != KEY_LENGTH or not text.isascii():
        return False
    try:
        z85.decode(text)
    except (KeyError, ValueError, struct.error):
        return False
    return True


def read_pair(file: Path) -> KeyPair:
    """Read the pair of a key file.

    Raises:
        ConfigurationError: ``key_file_unreadable``, ``key_file_open_to_others`` or ``bad_key_file``.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MOST_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ConfigurationError(
            f"the key file {file} can't be read ({reason})",
            "make one with: xbus keys new, or name another",
            code="key_file_unreadable",
        ) from error
    if private_files.is_open_to_others(file):
        raise ConfigurationError(
            f"others than its owner may use the key file {file}", f"chmod 600 {file}", code="key_file_open_to_others"
        )
    keys = dict(_LINE.findall(text))
    pair = KeyPair(keys.get("public", ""), keys.get("secret", ""))
    if not _belong_together(pair):
        raise ConfigurationError(
            f"the key file {file} has no public-key and secret-key that belong together",
            "make one with: xbus keys new",
            code="bad_key_file",
        )
    return pair


def write_pair(file: Path, pair: KeyPair) -> None:
    """Write a new key file, which its owner alone may read.

    Raises:
        ConfigurationError: ``key_file_exists``, or ``key_file_unwritable``.
    """
    text = (
        f'#   Keep this file to yourself.\ncurve\n    public-key = "{pair.public}"\n    secret-key = "{pair.secret}"\n'
    )
    try:
        with open(file, "x", encoding="utf-8", opener=private_files.opener) as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{file} exists, and who knows its public key would lose its owner",
            "name another file, or move this one away",
            code="key_file_exists",
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"the key file {file} can't be written ({error.strerror})",
            "name a file in a folder that you may write to",
            code="key_file_unwritable",
        ) from error


def _belong_together(pair: KeyPair) -> bool:
    if not is_public_key(pair.public) or not is_public_key(pair.secret):
        return False
    return zmq.curve_public(pair.secret.encode("ascii")).decode("ascii") == pair.public
