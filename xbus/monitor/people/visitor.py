"""The person behind a request, found by the cookie of a session or by a token for programs."""

from dataclasses import dataclass
from shlex import quote

from xbus.broker.journal.people import Person, Right
from xbus.errors import Refused


class NotLoggedIn(Refused):
    """The request names no session and no token that is in force."""

    default_code = "not_logged_in"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person who asks the monitor.

    Args:
        origin: the address from which the person asks.
        session_id: the person's session; None for a program that has a token.
    """

    person: Person
    origin: str
    session_id: int | None = None

    def may(self, right: Right) -> bool:
        """Check whether the person has a right."""
        return self.person.may(right)

    def check(self, right: Right) -> None:
        """Let a person pass who has a right.

        Raises:
            Refused: the person lacks it (``forbidden``).
        """
        if not self.may(right):
            raise Refused(
                f"{self.person.name} lacks the right {right}",
                f"ask a manager for it, who gives it by: xbus person rights {quote(self.person.name)} ... {right}",
                code="forbidden",
            )
