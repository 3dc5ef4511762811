"""The back's verbs for programs of readers: they ask for batches, settle them, and keep their ranges."""

from xbus.broker.answers import coded_answer
from xbus.broker.back.readers import ReaderDesks, ReadingProgram, read_batch_call, read_program, read_settlement
from xbus.broker.sessions import Sessions
from xbus.errors import CallError
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import undoes, verb
from xbus.rpc.messages import BatchAnswer, CheckpointAnswer, RangesAnswer


class ReaderVerbs:
    """One method per verb, named as the verb. None of them needs a registration.

    Args:
        desks: carry the calls out.
        sessions: the roles'.
    """

    def __init__(self, desks: ReaderDesks, sessions: Sessions) -> None:
        self._desks = desks
        self._sessions = sessions

    @verb("xbus.read_batch")
    @coded_answer
    async def read_batch(self, token: str, program: str, options: dict[str, Value]) -> BatchAnswer:
        call = read_batch_call(options)
        answer = await self._desks.read(self._caller(token, program, call.reader), call)
        try:
            # The token may have been revoked while the call waited.
            self._caller(token, program, call.reader)
        except CallError:
            self.undo_read_batch(answer)
            raise
        return answer

    @undoes("xbus.read_batch")
    def undo_read_batch(self, answer: BatchAnswer) -> None:
        if answer["batch"] is not None:
            self._desks.unheard(answer["batch"])

    @verb("xbus.checkpoint")
    @coded_answer
    async def checkpoint(
        self, token: str, program: str, range_id: int, counter: int, place: Value, reader: str = ""
    ) -> CheckpointAnswer:
        done = read_settlement([range_id, counter, place])
        return {"lease": await self._desks.settle(self._caller(token, program, reader), done)}

    @verb("xbus.renew_ranges")
    @coded_answer
    def renew_ranges(self, token: str, program: str, reader: str = "") -> RangesAnswer:
        return self._desks.renew(self._caller(token, program, reader))

    @verb("xbus.leave_ranges")
    @coded_answer
    async def leave_ranges(self, token: str, program: str, reader: str = "") -> bool:
        await self._desks.leave(self._caller(token, program, reader))
        return True

    def _caller(self, token: str, program: str, reader: str) -> ReadingProgram:
        return self._desks.program(self._sessions.owner(token), read_program(program), reader)
