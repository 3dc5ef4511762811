"""Makes the rules and the ways through the log of one round of removal; pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from xbus.broker.journal.retention.rules import Rule, Rules
from xbus.broker.journal.retention.search import Scan
from xbus.broker.journal.writes import Keepings
from xbus.clock import span


@dataclass(frozen=True, slots=True)
class Ages:
    """Knows how long each type is kept.

    Args:
        keepings: those of types that say so themselves.
        otherwise: seconds for which all others are kept; infinite for ever.
    """

    keepings: Keepings
    otherwise: float

    @property
    def limits(self) -> dict[int, int]:
        """The bytes of a type that stay, where it says so."""
        return {each: found.keep_bytes for each, found in self.keepings.items() if found.keep_bytes is not None}

    def rules(self, now: datetime, upto: Mapping[int, int]) -> Rules:
        """Make the rules of this moment.

        Args:
            upto: the positions up to which a type's events are beyond its bytes.
        """
        of_types = {
            each: Rule(_before(now, found.seconds(self.otherwise)), upto.get(each, 0), found.keep_last_per_key)
            for each, found in self.keepings.items()
        }
        return Rules(Rule(_before(now, self.otherwise)), of_types)

    def ways(self, rules: Rules) -> Iterator[tuple[Scan, Rule]]:
        """Iterate over ways with their rules: one for each type with a rule, and one for all others."""
        if rules.others.until is not None:
            yield Scan(rules, without=frozenset(rules.of_types)), rules.others
        for each, rule in rules.of_types.items():
            yield Scan(rules, only=frozenset({each})), rule

    def way_for_space(self, now: datetime) -> Scan | None:
        """Give the way to all envelopes that an age will remove, as if that day were now; or None."""
        mortal = {each for each, found in self.keepings.items() if found.seconds(self.otherwise) < math.inf}
        endless = self.keepings.keys() - mortal
        of_types = {each: Rule(now if each in mortal else None) for each in self.keepings}
        if self.otherwise < math.inf:
            return Scan(Rules(Rule(now), of_types), without=frozenset(endless))
        return Scan(Rules(Rule(), of_types), only=frozenset(mortal)) if mortal else None


def way_to_archive(keepings: Keepings, now: datetime) -> Scan | None:
    """Give the way to all that is to be archived now; None where no type is archived.

    An envelope goes into the archive as a whole. Types that are not archived have no say in that.
    """
    of_types = {
        each: Rule(_before(now, found.archive_after))
        for each, found in keepings.items()
        if found.archive_after is not None
    }
    return Scan(Rules(Rule(now), of_types), only=frozenset(of_types)) if of_types else None


def sealed_before(until: datetime) -> Scan:
    """Give the way to all that was sealed before a moment."""
    return Scan(Rules(Rule(until)))


def _before(now: datetime, seconds: float) -> datetime | None:
    return None if seconds == math.inf else now - span(seconds)
