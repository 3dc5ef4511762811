"""The bundles that a recipient takes, by its author's class."""

from xbus.recipient.base import Recipient, Worker, kind_of
from xbus.recipient.bulk import BulkWorker

MOST_PREPARED = 128
"""The most envelopes that a consumer without anything to commit leaves open for a decision. More takes more memory."""


def takes_bundles(recipient: Recipient) -> bool:
    """Check whether each envelope can be ended before the next one begins, whatever becomes of it elsewhere.

    A worker commits before it is known whether the consumers take what it made. It must have nothing to take back.
    """
    is_plain_worker = isinstance(recipient, Worker) and not isinstance(recipient, BulkWorker)
    return (is_plain_worker and _keeps_nothing(recipient)) or kind_of(recipient) == "consumer"


def prepared_at_once(recipient: Recipient) -> int:
    """Count the envelopes that may be open here for a decision by several consumers, each taken as a whole.

    A consumer with a commit or a rollback of its own has as many transactions as its author says by ``envelopes``.
    """
    if kind_of(recipient) != "consumer":
        return 0
    return max(MOST_PREPARED, recipient.envelopes) if _keeps_nothing(recipient) else recipient.envelopes


def _keeps_nothing(recipient: Recipient) -> bool:
    cls = type(recipient)
    return cls.commit is Recipient.commit and cls.rollback is Recipient.rollback
