"""Tells of commits: what they have stored and sealed, and that there is room again."""

from collections.abc import Callable, Sequence

from xbus.broker.journal.commit.committer import WriteJob
from xbus.broker.journal.writes import (
    Append,
    PutEnvelope,
    Repeat,
    Sealed,
    SealedEnvelope,
    SealedGroup,
    SealReceipt,
)


class WriterEvents:
    """Tells those who listen of room, and of what was stored and sealed, on the loop."""

    def __init__(self) -> None:
        self._room: list[Callable[[], None]] = []
        self._stored: list[Callable[[Sequence[Append]], None]] = []
        self._sealed: list[Callable[[Sequence[Sealed]], None]] = []

    def on_room(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called whenever ``has_room`` turns true again."""
        self._room.append(listener)

    def on_stored(self, listener: Callable[[Sequence[Append]], None]) -> None:
        """Have ``listener`` called after each commit that stored items of envelopes that come in parts."""
        self._stored.append(listener)

    def on_sealed(self, listener: Callable[[Sequence[Sealed]], None]) -> None:
        """Have ``listener`` called after each commit that sealed envelopes, before their emitters know."""
        self._sealed.append(listener)

    def tell_room(self) -> None:
        """Tell that there is room again."""
        for listener in self._room:
            listener()

    def tell_stored(self, appends: Sequence[Append]) -> None:
        """Tell which items a commit has stored."""
        for listener in self._stored:
            listener(appends)

    def tell_sealed(self, sealed: Sequence[Sealed]) -> None:
        """Tell which envelopes a commit has sealed, in position order."""
        for listener in self._sealed:
            listener(sealed)


def sealed_envelopes(calls: Sequence[WriteJob], answers: Sequence[object]) -> list[Sealed]:
    """The envelopes that calls sealed, in position order.

    Args:
        answers: of ``Committer.do``, or of ``Committer.decide``.
    """
    sealed: list[Sealed] = []
    for call, answer in zip(calls, answers, strict=True):
        if type(answer) is SealReceipt:
            content = call.what if type(call.what) is PutEnvelope else None
            sealed.append(SealedEnvelope(answer, content, type(call.what) is Repeat))
        elif type(answer) is SealedGroup and answer.hashes:
            sealed.append(answer)
    sealed.sort(key=lambda each: each.first)
    return sealed


def stored_appends(calls: Sequence[WriteJob], answers: Sequence[object]) -> list[Append]:
    """Give the items that calls stored in the database of envelopes that come in parts, in their order.

    What lies in an object store is left out: it is large, and would take the place of all others.

    Args:
        answers: as for ``sealed_envelopes``.
    """
    return [
        call.what
        for call, answer in zip(calls, answers, strict=True)
        if type(call.what) is Append and answer is None and call.what.stored is None
    ]
