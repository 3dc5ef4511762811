"""A whole bus in the memory of a test, with the real graph, journal, front and back."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Self, TypeVar, Unpack

import xbus.broker.journal.configuration as configuration
from xbus.admin.repair import moves
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration import BotSpec, BusSpec, EventTypeSpec, make_plan, read_stored
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import Catalog, read_catalog
from xbus.broker.journal.operations.bots import BotRunStatus, list_runs
from xbus.broker.journal.operations.parked import Filters, ParkedSummary, find_parked, list_parked
from xbus.config import BackSettings
from xbus.emitter.receipt import Receipt
from xbus.envelope import EnvelopeHead
from xbus.errors import ConfigurationError
from xbus.headers import NO_TAGS, EventTags, Headers, event_tags, pack_headers
from xbus.ids import Ids
from xbus.reader.options import ReaderKeywords
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import Value
from xbus.rpc.items import check_several
from xbus.testing.bots import GIVEN, BotFunction, fire
from xbus.testing.broker import VirtualBroker
from xbus.testing.machine import Machine
from xbus.testing.probe import CrashPoint, Mishap, RoleLog, values_of_type
from xbus.testing.programs import Author
from xbus.testing.pull import InMemoryReader, open_reader
from xbus.testing.sending import InMemoryEmitter, SentEnvelope, find_emitter
from xbus.testing.settling import PATIENCE_SECONDS, settle
from xbus.testing.sketch import BotFields, Flow, Sketch, read_bus_file

T = TypeVar("T")

MOST_LISTED = 1000


class Bus:
    """A bus in memory, in virtual time, on which the recipients of a test run::

        with Bus() as bus:
            bus.type("orders").through("capitals").to("ledger")
            bus.serve(Capitals)
            bus.emit("orders", [{"name": "Ada"}])
            bus.run()
            assert bus.received("ledger") == [{"name": "ADA"}]

    Consumers that the test does not serve only note what they get. Nothing happens but inside of a call: ``emit`` goes
    on until the envelope is sealed, ``run`` until everything is delivered or parked.

    Args:
        back: the retries and time-outs; those of ``config.ini`` by default.
    """

    def __init__(self, *, back: BackSettings = BackSettings()) -> None:  # noqa: B008 - it is frozen
        self._machine = Machine(back)
        self._database = self._machine.database
        self._programs = self._machine.programs
        self._bots = self._machine.bots
        self._sketch = Sketch()
        self._written = self._sketch.bus
        self.clock = self._machine.clock

    @classmethod
    def from_file(cls, path: str | Path, *, back: BackSettings = BackSettings()) -> Self:  # noqa: B008 - it is frozen
        """Make a bus as a bus file describes it; see ``load``."""
        bus = cls(back=back)
        try:
            bus.load(path)
        except BaseException:
            bus.close()
            raise
        return bus

    # -- the graph -------------------------------------------------------------------------------------------------

    def load(self, path: str | Path) -> None:
        """Add what a bus file describes, as ``xbus apply`` does.

        Raises:
            ConfigurationError: the file can't be applied; the error names each line.
        """
        self._apply(read_bus_file(path, self._database.read(read_stored)))

    def type(
        self, name: str, *, immediate_reply: bool = False, bad_items: Literal["envelope", "isolate"] = "envelope"
    ) -> Flow:
        """Add an event type; go on from what this returns: ``.to("ledger")``, ``.through("capitals").to("ledger")``."""
        self._sketch.add_type(EventTypeSpec(name, immediate_reply, {}, bad_items))
        return Flow(self._sketch, name)

    def bot(
        self,
        name: str,
        function: BotFunction,
        *,
        reads: Iterable[str] = (),
        emits: Iterable[str] = (),
        **settings: Unpack[BotFields],
    ) -> None:
        """Add a bot that calls a function, with all event types that it names.

        Args:
            function: gets a ``BotBatch`` and a ``BotOutput``.
            reads: the event types of which it gets batches.
            emits: the event types that it may put.
            **settings: as in a bus file: cron, settings, attempts and so on.
        """
        self._sketch.add_bot(BotSpec(name, GIVEN, reads=frozenset(reads), emits=frozenset(emits), **settings))
        self._bots.give(name, function)

    def _apply(self, bus: BusSpec) -> None:
        plan = make_plan(self._database.read(read_stored), bus)
        if plan.problems:
            raise ConfigurationError("; ".join(each.sentence for each in plan.problems), "correct the graph")
        self._database.write(configuration.apply, plan, self.clock.now())
        self._machine.note_change()
        catalog = self._catalog()
        self._programs.know(catalog)
        self._bots.know(catalog)

    def _catalog(self) -> Catalog:
        return self._database.read(read_catalog)

    def _write_sketch(self) -> None:
        if self._sketch.bus is not self._written:
            self._apply(self._sketch.bus)
            self._written = self._sketch.bus

    def _do(self, act: Callable[[VirtualBroker], Coroutine[object, object, T]]) -> T:
        self._write_sketch()
        return self._machine.do(act)

    # -- the recipients --------------------------------------------------------------------------------------------

    def serve(self, recipient: Author, service: str = "") -> None:
        """Have a recipient provide a service.

        Args:
            recipient: a worker or a consumer, or its class; a class is made anew for each role, and after each crash.
            service: the service, or the login of a role; by default the one that is called as the recipient's ``name``,
                or as its class: ``Capitals`` or ``capitals``, ``PriceList`` or ``price_list``.

        Raises:
            Refused: no service is called so (``unknown_service``).
        """
        self._write_sketch()
        self._programs.serve(recipient, service)

    def reader(self, name: str, **options: Unpack[ReaderKeywords]) -> InMemoryReader:
        """Make a reading program, to be used in ``with`` as ``xbus.reader.Reader``; it ends where nothing is left.

        Args:
            name: of the reader, or the login of a role of it.
            **options: as those of ``Reader``.

        Raises:
            Refused: no reader is called so (``unknown_reader``).
        """
        self._write_sketch()
        machine = self._machine
        program = open_reader(self._database, name, machine.new_connection(), machine.clock, machine.new_id())
        return InMemoryReader(program, lambda work: self._do(lambda broker: work), **options)

    def stop(self, service: str) -> None:
        """Stop the recipient of a service in order; what comes for it waits until ``start``."""
        self._do(lambda broker: self._programs.stop(service))

    def start(self, service: str) -> None:
        """Start again what ``stop`` stopped."""

        async def start(broker: VirtualBroker) -> None:
            self._programs.start(service)

        self._do(start)

    # -- what happens ----------------------------------------------------------------------------------------------

    def emit(
        self,
        event_type: str,
        items: Iterable[object],
        *,
        key: str | None = None,
        ordering_key: str | None = None,
        emitter: str = "",
        headers: Headers | None = None,
        partition_key: str | None = None,
    ) -> Receipt:
        """Send an envelope with one event; return its receipt once it is sealed.

        Args:
            items: values that msgpack can pack, or bytes as they are.
            key: the emitter's own name for the envelope, which is then sent once.
            ordering_key: ordered roles get envelopes of one key one after the other.
            emitter: the login of the emitter that sends; by default one that may send this type.
            headers: of the envelope.
            partition_key: of the event.

        Raises:
            Refused: the bus does not take it, with the code of its answer.
        """
        options = EnvelopeHead(ordering_key, key, pack_headers(headers))
        return self._send([(event_type, items)], options, emitter, event_tags(None, partition_key)).receipt

    def emit_all(
        self,
        events: Sequence[tuple[str, Iterable[object]]],
        *,
        key: str | None = None,
        ordering_key: str | None = None,
        emitter: str = "",
        headers: Headers | None = None,
    ) -> Receipt:
        """Send one envelope with several events, each a type and its items; else as ``emit``."""
        return self._send(events, EnvelopeHead(ordering_key, key, pack_headers(headers)), emitter).receipt

    def ask(
        self, event_type: str, items: Iterable[object], *, emitter: str = "", headers: Headers | None = None
    ) -> Value:
        """Send an envelope with one event whose type has an immediate reply; return the reply.

        Raises:
            Failed: nobody replied, with the code of the answer.
        """
        return self._send([(event_type, items)], EnvelopeHead(headers=pack_headers(headers)), emitter).replies[0]

    def fire(self, bot: str, slot: datetime | None = None) -> datetime | None:
        """Have a bot run, as its cron or a person does; then ``run``. A slot has one run, however often it is fired.

        Args:
            slot: a moment of its cron, with its time zone; None for the next one that had no turn yet. Slots before it
                are passed over.

        Returns:
            The slot; None for a bot without cron.

        Raises:
            Refused: no bot is called so (``unknown_name``), it has no such slot (``no_slot``), or it runs when
                something comes (``bot_reads``).
        """
        return self._do(lambda broker: fire(broker, self._database, bot, slot, self.clock.now()))

    def run(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Let time pass until everything is delivered or parked, but for what waits for a stopped recipient.

        Raises:
            TimedOut: something is still to come after so many seconds of virtual time (``not_delivered``).
        """
        self._do(lambda broker: settle(self._machine, seconds))

    def wait(self, seconds: float) -> None:
        """Let so many seconds of virtual time pass."""
        self._do(lambda broker: asyncio.sleep(seconds))

    def _send(
        self,
        events: Sequence[tuple[str, Iterable[object]]],
        options: EnvelopeHead,
        login: str,
        tags: EventTags = NO_TAGS,
    ) -> SentEnvelope:
        for _, items in events:
            check_several(items)
        listed = [(event_type, list(items)) for event_type, items in events]
        self._write_sketch()
        catalog = self._catalog()

        async def send(broker: VirtualBroker) -> SentEnvelope:
            emitter_id = find_emitter(catalog, {event_type for event_type, _ in listed}, login)
            emitter = InMemoryEmitter(broker, emitter_id, self._machine.random)
            return await emitter.send(
                listed,
                options,
                lambda name: name in catalog.event_types and catalog.event_types[name].immediate_reply,
                tags,
            )

        return self._do(send)

    # -- what came of it -------------------------------------------------------------------------------------------

    def received(self, service: str, event_type: str | None = None) -> list[object]:
        """List the values that a service committed, in the order of its commits; what came twice stands here twice.

        Args:
            service: the service, or the login of a role where it has several.
            event_type: only values of this type.
        """
        self._write_sketch()
        return values_of_type(self._programs.log(self._programs.one_login(service)).taken, event_type)

    def answered(self, service: str, event_type: str | None = None) -> list[object]:
        """List the values that a worker answered to what it committed; arguments are those of ``received``."""
        self._write_sketch()
        return values_of_type(self._programs.log(self._programs.one_login(service)).answered, event_type)

    def mishaps(self, name: str) -> list[Mishap]:
        """List the exceptions in the code of a service, a role or a bot, each with its known item."""
        return [mishap for log in self._logs(name) for mishap in log.mishaps]

    def sent(self, event_type: str) -> list[object]:
        """List the values of all items of an event type, in the order of the log, whoever has sent them."""
        self._write_sketch()
        return self._do(lambda broker: broker.unless_dead(broker.reading.values(event_type)))

    def runs(self, bot: str | None = None) -> list[BotRunStatus]:
        """List the runs of a bot, or of all, the oldest first: slot, state, attempts, code and error."""
        self._write_sketch()
        return self._database.read(list_runs, bot, MOST_LISTED)[::-1]

    def commits(self, service: str) -> list[str]:
        """List the ids of the envelopes that a service committed, in that order."""
        self._write_sketch()
        return list(self._programs.log(self._programs.one_login(service)).commits)

    def parked(self, service: str = "") -> list[ParkedSummary]:
        """List what is parked for a service or a role, or for all: the cause, the code, the attempts."""
        self._write_sketch()
        found = self._database.read(list_parked, Filters(), MOST_LISTED)
        logins = self._programs.logins(service) if service else ()
        return [each for each in found if not service or each.role in logins]

    def resume(self, service: str = "") -> None:
        """Resume what is parked for a service or a role, or for all, as ``xbus parked resume``; then ``run``."""
        decision = RepairDecision("the test", "", self.clock.now())

        def resume(connection: Connection) -> None:
            for each in parked:
                past, found = find_parked(connection, each.envelope_id, each.role)
                for part in found:
                    moves.resume(connection, past, part, decision, Ids(self.clock))

        parked = {(each.envelope_id, each.role): each for each in self.parked(service)}.values()
        self._database.write(resume)

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def fail(self, service: str, error: Exception | None = None, *, times: int = 1) -> None:
        """Have the next batches of items fail at a service, in the place of the author's code.

        Args:
            error: what is raised; by default one after which the bus tries again.
            times: for how many batches.
        """
        for log in self._logs(service):
            log.failures.extend([error or RuntimeError("the test has it fail")] * times)

    def refuse(self, service: str, message: str, indices: Iterable[int] = (), *, times: int = 1) -> None:
        """Have the next batches of items refused for good at a service; the bus parks them."""
        self.fail(service, Refusal(message, indices), times=times)

    def crash(self, service: str, when: CrashPoint = "after_commit") -> None:
        """Have the recipient of a service crash at the next moment of that kind; it starts again a second later.

        After a crash behind the author's ``commit`` the envelope comes a second time, as the bus can't know of it.
        """
        for log in self._logs(service):
            log.crash = when

    def _logs(self, name: str) -> list[RoleLog]:
        self._write_sketch()
        if name in self._bots.names:
            return [self._bots.log(name)]
        return [self._programs.log(login) for login in self._programs.logins(name)]

    def crash_broker(self) -> None:
        """Kill the broker, and start another one on what the journal holds."""
        self._write_sketch()
        self._machine.crash_broker()

    def close(self) -> None:
        """Stop everything."""
        self._machine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
