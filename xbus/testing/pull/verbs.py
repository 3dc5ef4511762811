"""The verbs of the back for reading programs, with logins that need no password."""

import asyncio
import inspect
from typing import cast

from xbus.broker.back.back import Back
from xbus.broker.back.reading import LogReading, ReaderTypes, read_question
from xbus.broker.back.verbs import LogVerbs, ReaderVerbs
from xbus.broker.configuration import Configuration
from xbus.broker.journal.journal import Journal
from xbus.broker.sessions import Sessions
from xbus.errors import Refused
from xbus.reader.batch import read_event
from xbus.rpc.codec import Value, pack, unpack
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.messages import BackLogin

MAX_BATCH_BYTES = 16 * 1024 * 1024
"""The largest batch that a recipient may send, as the back tells it; readers send none."""


class _Logins:
    """Lets every role of a reader in, as ``Sessions`` does with a password.

    Args:
        configuration: has the roles.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    @verb("xbus.login")
    def login(self, login: str, password: str) -> BackLogin:
        for role in self._configuration.catalog.reader_roles.values():
            if role.login == login:
                return {"token": str(role.id), "max_batch_bytes": MAX_BATCH_BYTES}
        raise Refused(f"no reader has the role {login}", "describe the reader first", code="login_refused")

    @verb("xbus.logout")
    def logout(self, token: str) -> bool:
        return True

    def owner(self, token: str) -> int:
        """Give the role of a session."""
        return int(token)


class ReadingVerbs:
    """Answers the calls of reading programs.

    Args:
        journal: of the broker.
        configuration: of the broker.
        back: carries the calls out.
    """

    def __init__(self, journal: Journal, configuration: Configuration, back: Back) -> None:
        logins = _Logins(configuration)
        sessions = cast(Sessions, logins)
        self._configuration = configuration
        self._reading = reading = LogReading(journal, back.slices)
        types = ReaderTypes(journal)
        self._dispatch = Dispatch(
            logins,
            ReaderVerbs(back.readers, sessions),
            LogVerbs(reading, types, sessions, lambda: configuration.catalog),
        )

    async def answer(self, name: str, args: object) -> Value:
        """Answer a call; arguments and answer have the form in which the wire brings them.

        Raises:
            CallError: as the verb does.
        """
        brought = unpack(pack(args))
        assert isinstance(brought, list)
        answer = self._dispatch.call(name, brought, {})
        if inspect.isawaitable(answer):
            answer = await asyncio.ensure_future(answer)
        return unpack(pack(answer))

    async def values(self, event_type: str) -> list[object]:
        """Read all items of an event type, in the order of the log.

        Raises:
            Refused: there is no such type (``type_unknown``).
        """
        known = {each.name: each.id for each in self._configuration.catalog.event_types.values()}
        options: dict[str, Value] = {"types": [event_type], "from": "oldest"}
        values: list[object] = []
        while True:
            answer = await self._reading.answer(read_question(options, known, frozenset(known.values())))
            values += [item.value for event in answer["events"] for item in read_event(event)]
            if not answer["events"]:
                return values
            options["from"] = [*answer["to"]]
