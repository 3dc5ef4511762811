"""The abilities that a recipient announces; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from xbus.rpc.codec import Value


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities that a recipient announced.

    Args:
        batches: whether it takes items by the batch, call behind call.
        envelopes: how many envelopes, or events of a worker, it takes at once.
        bundles: whether it takes several whole envelopes in one call.
        prepares: how many whole envelopes may be open until it is decided about them; 0 where none may.
        prepares_next: whether it takes the next ones in the call that has these committed.
        notes: whether it wants a note with each envelope.
        headers: whether it wants the headers of envelopes and events.
        outs: whether it may name event types as which items that it made go on.
        heartbeats: whether it tells by itself that it lives, and how far it is: then its time-outs are of progress.
        immediate_reply: the names of the event types to which it gives an immediate reply.
        bulk_items: an event of so many items it takes as a whole; None where it takes none so.
        bulk_attempts: the ids of the outputs that it made when it introduced itself; None where it does not tell.
    """

    batches: bool = False
    envelopes: int = 1
    bundles: bool = False
    prepares: int = 0
    prepares_next: bool = False
    notes: bool = False
    headers: bool = False
    outs: bool = False
    heartbeats: bool = False
    immediate_reply: frozenset[str] = frozenset()
    bulk_items: int | None = None
    bulk_attempts: frozenset[str] | None = None

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Value], immediate_reply: Iterable[str] = ()) -> "Abilities":
        """Read the abilities in the answer to ``get_metadata``; an old recipient announces none."""
        types = frozenset(immediate_reply)
        match metadata.get("xbus"):
            case {"batches": 1, "envelopes": int(envelopes), **more} if envelopes >= 1:
                known = cls(
                    batches=True,
                    envelopes=envelopes,
                    bundles=more.get("bundles") is True,
                    prepares=_number(more.get("prepares")),
                    prepares_next=more.get("prepares_next") is True,
                    notes=more.get("notes") is True,
                    headers=more.get("headers") is True,
                    outs=more.get("outs") is True,
                    heartbeats=more.get("heartbeats") is True,
                    immediate_reply=types,
                )
                return known._with_bulk(more.get("bulk"))
        return cls(immediate_reply=types)

    def _with_bulk(self, announced: object) -> "Abilities":
        match announced:
            case {"min_items": int(items), **more} if items >= 0:
                attempts = more.get("attempts")
                told = frozenset(map(str, attempts)) if isinstance(attempts, list) else None
                return replace(self, bulk_items=items, bulk_attempts=told)
        return self

    def shared_with(self, other: "Abilities") -> "Abilities":
        """Give the abilities of two programs of one role on which the broker may count whichever it calls.

        The rest of them matters only to the calls of each.
        """
        return replace(
            self,
            envelopes=self.envelopes + other.envelopes,
            bundles=self.bundles and other.bundles,
            prepares=min(self.prepares, other.prepares),
            immediate_reply=self.immediate_reply & other.immediate_reply,
        )

    def takes_whole(self, items: int) -> bool:
        """Check whether the recipient takes an event of so many items as a whole."""
        return self.bulk_items is not None and items >= max(self.bulk_items, 1)


def _number(announced: object) -> int:
    return max(0, announced) if type(announced) is int else 0
