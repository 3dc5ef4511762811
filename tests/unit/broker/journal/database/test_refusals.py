"""Refusals of a database that only a person can end, and outages, told apart by the words of the driver."""

import psycopg2
import pytest

from xbus.broker.journal.database.engine import journal_error
from xbus.ending import exit_code
from xbus.errors import JournalRefused, JournalUnavailable

AT = 'connection to server at "127.0.0.1", port 5432 failed: '

REFUSALS = (
    f'{AT}FATAL:  password authentication failed for user "shop"\n',
    f'{AT}FATAL:  role "shop" does not exist\n',
    f'{AT}FATAL:  database "shop" does not exist\n',
    f'{AT}FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "shop", database "shop", no encryption\n',
    f"{AT}fe_sendauth: no password supplied\n",
    f'{AT}Connection refused\n\tIs the server running?\n{AT}FATAL:  Peer authentication failed for user "shop"\n',
)
OUTAGES = (
    f"{AT}Connection refused\n",
    f"{AT}FATAL:  the database system is starting up\n",
    f"{AT}FATAL:  sorry, too many clients already\n",
    "server closed the connection unexpectedly\n",
)


@pytest.mark.parametrize("words", [*REFUSALS, *OUTAGES])
def test_a_refusal_is_told_from_an_outage(words: str) -> None:
    error = journal_error(psycopg2.OperationalError(words))
    assert isinstance(error, JournalUnavailable), "a broker that runs already goes on trying"
    assert isinstance(error, JournalRefused) == (words in REFUSALS)
    assert (exit_code(error), error.code) == (1 if words in REFUSALS else 3, "journal_unavailable")
