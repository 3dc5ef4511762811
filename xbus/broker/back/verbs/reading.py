"""The back's verb for programs that read the log from any place on."""

from collections.abc import Callable

from xbus.broker.answers import coded_answer
from xbus.broker.back.reading import LogReading, ReaderTypes, read_question
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.sessions import Sessions
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import LogAnswer


class LogVerbs:
    """One method per verb, named as the verb.

    Args:
        reading: carries the calls out.
        types: knows what each reader reads.
        sessions: the roles'.
        catalog: the configuration as it is now.
    """

    def __init__(
        self, reading: LogReading, types: ReaderTypes, sessions: Sessions, catalog: Callable[[], Catalog]
    ) -> None:
        self._reading = reading
        self._types = types
        self._sessions = sessions
        self._catalog = catalog

    @verb("xbus.read_log")
    @coded_answer
    async def read_log(self, token: str, options: dict[str, Value]) -> LogAnswer:
        catalog = self._catalog()
        own = await self._types.of_role(catalog, self._sessions.owner(token))
        known = {event_type.name: event_type.id for event_type in catalog.event_types.values()}
        return await self._reading.answer(read_question(options, known, own))
