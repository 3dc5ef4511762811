"""Passwords are kept as Argon2id hashes, and checked in the same time whether or not the login exists.

Hashes of xbus.broker 0.2.0 are checked too, so that who comes from there logs in as before; they are to be made anew at
the first login. Such a hash is 80 hexadecimal digits: 40 of a salt, then 40 of the SHA-1 of password and salt.
"""

import hashlib
import hmac
import logging
import re
import secrets
from base64 import b64encode

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from xbus.errors import Refused

logger = logging.getLogger(__name__)

SHORTEST = 8
"""Characters of a person's password at the least, as OWASP's ASVS 5.0 asks for in 6.2.1. Longer ones are better."""

_SALT_DIGITS = 40


def default_hasher() -> PasswordHasher:
    """Make the second choice of the OWASP Password Storage Cheat Sheet: 19 MiB of memory, two passes, one thread.

    Its first choice takes more than twice the memory for each login, which a broker with a memory limit would feel.
    """
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


def _hash_of_nobody(hasher: PasswordHasher) -> str:
    """Write a hash that no password has: to check one against it takes as long as against a hash that is stored."""
    salt, digest = (_base64(secrets.token_bytes(size)) for size in (hasher.salt_len, hasher.hash_len))
    return f"$argon2id$v=19$m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}${salt}${digest}"


def _base64(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")


def is_legacy_hash(password_hash: str) -> bool:
    """Check whether ``password_hash`` has the form in which xbus.broker 0.2.0 wrote them."""
    return re.fullmatch(r"[0-9a-f]{80}", password_hash) is not None


def check_new(password: str) -> None:
    """Let a new password of a person pass.

    Raises:
        Refused: others would guess it (``bad_password``).
    """
    if len(password) < SHORTEST:
        cause = f"the password has fewer than {SHORTEST} characters"
        raise Refused(cause, "take a longer one, such as a sentence", code="bad_password")


class Passwords:
    """Makes and checks hashes; each takes some ten milliseconds of a processor, on purpose.

    Args:
        hasher: the cost of a hash; tests hand in a cheap one.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or default_hasher()
        self._nobodys_hash = _hash_of_nobody(self._hasher)

    def hash_password(self, password: str) -> str:
        """Hash ``password`` for storage: at most 255 characters of ASCII with cost, salt and hash."""
        return self._hasher.hash(_encoded(password))

    def verify(self, password: str, password_hash: str | None) -> bool:
        """Check whether ``password`` is the one behind ``password_hash``.

        Args:
            password: as the caller gave it.
            password_hash: as stored; None for an unknown login or one without a password. That takes as long and is
                always false, so the time reveals no logins. The same holds for hashes of xbus.broker 0.2.0, which are
                cheap to check.
        """
        if not password_hash:
            self._spend_the_time(password)
            return False
        if is_legacy_hash(password_hash):
            self._spend_the_time(password)
            return _matches_legacy(password, password_hash)
        return self._matches(password, password_hash)

    def needs_rehash(self, password_hash: str) -> bool:
        """Check whether ``password_hash`` has another cost than today's, and should be made anew at this login."""
        return is_legacy_hash(password_hash) or self._hasher.check_needs_rehash(password_hash)

    def _matches(self, password: str, password_hash: str) -> bool:
        try:
            return self._hasher.verify(password_hash, _encoded(password))
        except VerificationError:
            return False
        except (InvalidHashError, UnicodeEncodeError):
            logger.error("a stored password hash can't be read; set the password anew", extra={"action": "verify"})
            self._spend_the_time(password)
            return False

    def _spend_the_time(self, password: str) -> None:
        self._matches(password, self._nobodys_hash)


def _matches_legacy(password: str, password_hash: str) -> bool:
    salt, digest = password_hash[:_SALT_DIGITS], password_hash[_SALT_DIGITS:]
    made = hashlib.sha1(_encoded(password) + salt.encode("ascii"), usedforsecurity=False)
    return hmac.compare_digest(made.hexdigest(), digest)


def _encoded(password: str) -> bytes:
    # Whatever text a client can send must be answered, so also half surrogate pairs.
    return password.encode("utf-8", "surrogatepass")
