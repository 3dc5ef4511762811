"""Logins: passwords are checked a few at a time, in fair turns, and who guesses wrong waits longer and longer.

It knows API tokens by their hashes. It never begins a session. The sessions of the broker use it.
"""

from xbus.broker.logins.api_tokens import ApiTokens
from xbus.broker.logins.credentials import Credentials, Verified, check_time
from xbus.broker.logins.tally import LoginTally
from xbus.broker.logins.turns import LOGINS_AT_ONCE, Caller, LoginTurns
from xbus.broker.logins.wrong_guesses import WrongGuesses

__all__ = [
    "LOGINS_AT_ONCE",
    "ApiTokens",
    "Caller",
    "Credentials",
    "LoginTally",
    "LoginTurns",
    "Verified",
    "WrongGuesses",
    "check_time",
]
