"""The envelopes that a role would miss if somebody detached it, in words."""

from collections.abc import Iterator

from xbus.admin.output import moment
from xbus.broker.journal.configuration.detaching import Outlook
from xbus.broker.journal.log.role_progress import MOST_COUNTED


def told(outlook: Outlook) -> Iterator[str]:
    """Say in sentences how much it is, and where it lies."""
    number = f"{outlook.envelopes:,}" + (" or more" if outlook.envelopes >= MOST_COUNTED else "")
    if not outlook.envelopes:
        yield f"{outlook.role} has got all that it is owed."
        return
    yield f"{outlook.role} has not got, and will miss: {number} envelope{'s' * (outlook.envelopes != 1)}."
    if outlook.head > outlook.position:
        yield f"They lie in the log between the positions {outlook.position + 1} and {outlook.head}."
    if outlook.since is not None:
        yield f"The oldest was received at {moment(outlook.since)}."
    if outlook.rows:
        counts = ", ".join(f"{number:,} {state}" for state, number in sorted(outlook.rows.items()))
        yield f"Some had their turn already: {counts}."
