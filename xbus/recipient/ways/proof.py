"""A broker that comes to a port shows that it is the one at which the recipient registered."""

import secrets
from collections import deque
from collections.abc import Callable
from hmac import compare_digest

from xbus.errors import Refused
from xbus.ids import proof_of
from xbus.rpc.dispatch import verb

CHALLENGE_BYTES = 32

MOST_CALLERS = 100
"""The most connections of which a challenge or a proof is remembered."""

OPEN_VERBS = frozenset({"ping", "xbus.challenge", "xbus.prove"})
"""The verbs that need no proof: they tell nothing, and change nothing of others."""


class BrokerProof:
    """Lets those call who have shown that they know the hash of the recipient's token: the broker alone keeps it.

    Args:
        caller: tells by which connection the call came that is carried out now.
    """

    def __init__(self, caller: Callable[[], bytes]) -> None:
        self._caller = caller
        self._token_hash: bytes | None = None
        self._challenges: deque[tuple[bytes, bytes]] = deque(maxlen=MOST_CALLERS)
        self._proven: deque[bytes] = deque(maxlen=MOST_CALLERS)

    def expect(self, token_hash: bytes) -> None:
        """Demand the proof from now on, for this session."""
        self._token_hash = token_hash

    @verb("xbus.challenge")
    def challenge(self) -> bytes:
        """Give the bytes that the caller's proof is to be made of."""
        made = secrets.token_bytes(CHALLENGE_BYTES)
        self._challenges.append((self._caller(), made))
        return made

    @verb("xbus.prove")
    def prove(self, proof: bytes) -> bool:
        """Take the caller for the broker.

        Raises:
            Refused: not_proven.
        """
        caller = self._caller()
        of_caller = [challenge for whose, challenge in self._challenges if whose == caller]
        if self._token_hash is None or not of_caller:
            raise _not_proven()
        if not compare_digest(proof_of(self._token_hash, of_caller[-1]), proof):
            raise _not_proven()
        self._proven.append(caller)
        return True

    def admit(self, verb_name: str) -> None:
        """Let a call pass.

        Raises:
            Refused: not_proven.
        """
        refusal = None if verb_name in OPEN_VERBS else self.refusal()
        if refusal is not None:
            raise refusal

    def refusal(self) -> Refused | None:
        """Give the refusal of whoever calls now; None if that is the broker, or nobody needs a proof yet."""
        return None if self._token_hash is None or self._caller() in self._proven else _not_proven()


def _not_proven() -> Refused:
    return Refused(
        "the caller has not shown that it is the broker at which this recipient registered",
        "prove it: xbus.challenge, xbus.prove",
        code="not_proven",
    )
