"""The encryption of the broker's ports, made of its configuration: its keys, and who may connect."""

import logging
from collections.abc import Callable

from xbus.clock import Clock
from xbus.config import Config
from xbus.config.plaintext import has_encrypted_bell, needs_keys, open_addresses, plaintext_problems
from xbus.rpc.bell import DOMAIN as BELL
from xbus.rpc.context import Context
from xbus.rpc.curve import Authenticator, KeyPair, new_pair, read_pair, write_pair
from xbus.rpc.server import EncryptedDoor

log = logging.getLogger(__name__)


class Encryption:
    """The keys of the broker, and the authenticator of all its ports.

    Without encrypted ports it does nothing.

    Args:
        config: names the ports and the key file.
        context: of the ports.
        clock: for the authenticator's log.

    Raises:
        ConfigurationError: the key file can't be used.
    """

    def __init__(self, config: Config, context: Context, clock: Clock) -> None:
        self.pair: KeyPair | None = None
        """The keys of the broker; None where it encrypts nothing."""
        self._authenticator: Authenticator | None = None
        self.bell_pair: KeyPair | None = None
        """The keys for both ends of the bell; None where that stays within the machine."""
        if needs_keys(config):
            self.pair = read_pair(config.curve.key_file)
            self._authenticator = Authenticator(context, clock)
        if has_encrypted_bell(config):
            self.bell_pair = self.pair
            self._admit(BELL, self._is_own)

    def door(self, address: str, domain: str, allows: Callable[[str], bool]) -> EncryptedDoor | None:
        """Give the encrypted door of a part; None where the configuration names no address.

        Args:
            address: as the configuration names it; empty for none.
            domain: the name of the part.
            allows: tells whether a public key may connect there.
        """
        if not address or self.pair is None:
            return None
        self._admit(domain, allows)
        return EncryptedDoor(address, self.pair, domain, allows)

    def start(self) -> None:
        """Let those in who may come; the configuration was read."""
        if self._authenticator is not None:
            self._authenticator.start()

    def close(self) -> None:
        """Let nobody in any more."""
        if self._authenticator is not None:
            self._authenticator.close()

    def _admit(self, domain: str, allows: Callable[[str], bool]) -> None:
        if self._authenticator is not None:
            self._authenticator.admit(domain, allows)

    def _is_own(self, key: str) -> bool:
        return self.pair is not None and key == self.pair.public


def check_plaintext(config: Config) -> None:
    """Refuse addresses without encryption that other machines reach, and warn of those that are allowed.

    Raises:
        ConfigurationError: ``plaintext_refused``.
    """
    for problem in plaintext_problems(config):
        raise problem
    for option, address in open_addresses(config):
        log.warning(
            "%s = %s is not encrypted: whoever listens on the network reads passwords and items",
            *(option, address),
            extra={"action": "plaintext"},
        )


def make_keys(config: Config) -> str | None:
    """Make the broker's key file, where the configuration needs one that does not exist.

    Returns:
        The public key; None where nothing was made.

    Raises:
        ConfigurationError: the file can't be written.
    """
    if not needs_keys(config) or config.curve.key_file.exists():
        return None
    pair = new_pair()
    write_pair(config.curve.key_file, pair)
    return pair.public
