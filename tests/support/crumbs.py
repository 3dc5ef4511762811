"""``python -m tests.support.crumbs ADDRESS LOGIN``: somebody who sends messages of 8 million frames.

Each comes over a connection of its own, behind a login where one is named. After each the program writes a line.
"""

import sys
from contextlib import suppress

from tests.support.bus import PASSWORD
from tests.support.strangers import Stranger

FRAMES = 8_000_000
"""Empty ones: 16 MB on the wire, as much as the largest message has."""


def crumble(address: str, login: str) -> None:
    """Send one such message, after a login where one is named."""
    with Stranger(address) as peer:
        if login:
            peer.call("xbus.login", login, PASSWORD)
            assert "token" in peer.answer()[1]
        with suppress(ConnectionError):
            peer.send_raw(b"\x01\x00" * FRAMES + b"\x00\x00")


if __name__ == "__main__":
    while True:
        crumble(*sys.argv[1:])
        sys.stdout.write("sent\n")
        sys.stdout.flush()
