"""The emitter for ordinary, blocking programs: a thin face over the asynchronous one."""

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Unpack

from xbus.clock import Clock
from xbus.emitter.asynchronous import AsyncEmitter
from xbus.emitter.background import Background, HostedClient
from xbus.emitter.envelope import AsyncEnvelope, AsyncEvent, event_closed
from xbus.emitter.options import OptionKeywords
from xbus.emitter.receipt import Receipt
from xbus.headers import Headers
from xbus.ids import Ids
from xbus.rpc.codec import Key, Value
from xbus.rpc.items import PackHook


class Emitter:
    """Sends envelopes to the bus::

        with Emitter("tcp://127.0.0.1:1984", "test_emitter", "password") as emitter:
            with emitter.envelope() as envelope:
                with envelope.event("test_event") as event:
                    event.send({"client": 1})
            print(envelope.receipt.position)

    A thread of its own sends full and waiting batches, keeps the session alive and repeats calls that got no answer.
    Several threads may each send envelopes of their own. In a forked process it is opened anew at its first use; what
    the parent has open goes on in the parent.

    Args:
        url: the front socket of the bus, such as ``tcp://127.0.0.1:1984``; or, for an encrypted connection,
            ``xbus://login@host:port?key=...&client_key=FILE``, as docs/keys.md explains.
        login: the emitter's login; by default that of ``url``.
        password: the emitter's password; by default that of the ``password_file`` in ``url``, or of the environment
            variable ``XBUS_PASSWORD``.
        outbox: a local file that keeps envelopes until the bus has them, also while it is away. An envelope is durable
            there when its block ends, and goes to the bus from there, in order, once.
        clock: tells the time; the machine's own where none is given.
        ids: makes the ids of envelopes and events.
        pack: called for each value in an item that can't be packed, with the value; returns one that can, in its place,
            or raises ``TypeError``. Dates, times, decimal numbers and UUIDs are packed as text, and members of an enum
            as their values, without it. It must give the same for the same value.
        **options: see ``Options``.

    Raises:
        ConfigurationError: ``url`` makes no sense, or names a key file that can't be used; login or password are
            missing.
        Refused: at ``with``: login or password are wrong (``login_refused``); another process sends from the outbox
            (``outbox_in_use``).
        Failed: at ``with``: nothing answers at ``url`` within ``retry_seconds``. With an outbox it may be away.
    """

    def __init__(
        self,
        url: str,
        login: str = "",
        password: str = "",
        *,
        outbox: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        pack: PackHook | None = None,
        **options: Unpack[OptionKeywords],
    ) -> None:
        self._emitter = AsyncEmitter(url, login, password, outbox=outbox, clock=clock, ids=ids, pack=pack, **options)
        self._hosted = HostedClient("emitter", self._emitter)

    def __enter__(self) -> "Emitter":
        self._hosted.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hosted.close(kind, error, trace)

    def envelope(
        self,
        *,
        ordering_key: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        headers: Headers | None = None,
    ) -> "Envelope":
        """Begin an envelope, to be used in ``with``: leaving the block seals it, an exception cancels it.

        Args:
            ordering_key: roles that want order get envelopes of one key one after the other, whatever becomes of those
                of other keys; None is a key too.
            key: what this emitter calls the envelope, for good. Sent again under the same key, by whichever process, it
                goes on where it was, or gets its first receipt; other content is refused (``key_reused``).
            timeout: the most seconds that each call in it waits: its beginning with a key, ``send``, ``flush`` and
                ``reply`` unless they say otherwise, and the ends of its events and of itself. At its own end a call
                that takes longer cancels it, as far as the bus can be reached. None for ``retry_seconds`` alone.
            headers: named values that tell of the envelope: texts, numbers, booleans and moments (``datetime``), of at
                most 4 KiB packed. The bus checks ``source_time``, ``correlation_id``, ``traceparent``, ``tracestate``,
                ``content_type`` and ``schema``; other names are yours.

        Raises:
            Refused: a header can't be sent (``bad_header``, ``headers_too_large``); at ``with``: the broker takes none
                (``headers_unsupported``).
        """
        envelope = self._emitter.envelope(ordering_key=ordering_key, key=key, timeout=timeout, headers=headers)
        return Envelope(self._hosted.background, envelope)

    def put(
        self,
        type_name: str,
        items: Iterable[object],
        *,
        ordering_key: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        headers: Headers | None = None,
        partition_key: str | None = None,
    ) -> Receipt:
        """Send a whole envelope of one event; in a single call where it fits into one batch.

        Args:
            type_name: the event type.
            items: all its items, kept in memory until the bus has them: a list of them, also for a single one.
            ordering_key: as at ``envelope``.
            key: the same.
            timeout: the most seconds that it may take in all; None for ``retry_seconds`` alone.
            headers: as at ``envelope``.
            partition_key: as at ``Envelope.event``.

        Raises:
            Refused: the envelope can't be taken; ``code`` says why.
            Failed: the bus did not take it within ``retry_seconds`` or ``timeout``. Whether it has it is not known, if
                it could be reached: under a ``key`` you may send it again.
        """
        put = self._emitter.put(
            type_name,
            items,
            ordering_key=ordering_key,
            key=key,
            timeout=timeout,
            headers=headers,
            partition_key=partition_key,
        )
        return self._hosted.run(put)

    def ask(
        self, type_name: str, *items: object, timeout: float | None = None, headers: Headers | None = None
    ) -> Value:
        """Send an envelope of one event, and wait for a consumer's immediate reply to it::

            price = emitter.ask("price_wanted", {"article": 4711})

        The envelope is sealed once the reply is there; where none comes it is cancelled, and the consumer rolls back.

        Args:
            type_name: the event type, one with ``immediate_reply``.
            items: all items of the event.
            timeout: as of ``put``.
            headers: as at ``envelope``.

        Returns:
            The reply of the consumer.

        Raises:
            Refused: the event can't be taken; ``code`` says why, as ``reply_refused`` where the consumer refused it, or
                ``no_reply`` where the event type has no immediate reply.
            Failed: no reply came (``reply_failed``, ``reply_timed_out``); or the bus did not take the envelope within
                ``retry_seconds``.
        """
        return self._hosted.run(self._emitter.ask(type_name, *items, timeout=timeout, headers=headers))

    def consumers(self, *, timeout: float | None = None) -> list[tuple[Mapping[Key, Value], Mapping[Key, Value]]]:
        """Read the introductions of the registered consumers.

        Returns:
            For each its metadata, and its features by name: ``clearing`` as ``[False, None]`` or ``[True, url]``,
            ``immediate_reply`` as ``[False, None]`` or ``[True, names of event types]``.

        Raises:
            Failed: the bus did not answer within ``retry_seconds`` or ``timeout``.
        """
        return self._hosted.run(self._emitter.consumers(timeout=timeout))

    def retry(self, event_id: str, *, timeout: float | None = None) -> str:
        """Have the envelope of an event delivered again, as a new one, to the consumers for which it is parked.

        Asked again it answers the same, and nothing is done twice.

        Args:
            event_id: of an event that this emitter sent.
            timeout: as of ``put``.

        Returns:
            The id of the event that repeats it.

        Raises:
            Refused: it is parked for nobody (``nothing_to_retry``), or can't be sent again; ``code`` says why.
            Failed: the bus did not do it within ``retry_seconds``.
        """
        return self._hosted.run(self._emitter.retry(event_id, timeout=timeout))

    def replay(self, envelope_id: str, *, timeout: float | None = None) -> str:
        """Have a sealed envelope delivered to everybody again, as a new one, the way that its event types take now.

        Args:
            envelope_id: of an envelope that this emitter sent.
            timeout: as of ``put``.

        Returns:
            The id of the new envelope.

        Raises:
            Refused: it can't be sent again; ``code`` says why.
            Failed: the bus did not do it within ``retry_seconds``.
        """
        return self._hosted.run(self._emitter.replay(envelope_id, timeout=timeout))


class Envelope:
    """One envelope: all of it arrives, or nothing. Made by ``Emitter.envelope``."""

    def __init__(self, background: Background, envelope: AsyncEnvelope) -> None:
        self._background = background
        self._envelope = envelope

    def __enter__(self) -> "Envelope":
        self._background.run(self._envelope.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.run(self._envelope.__aexit__(kind, error, trace))

    @property
    def id(self) -> str:
        """The envelope's UUID as text."""
        return self._envelope.id

    @property
    def receipt(self) -> Receipt:
        """The proof that the bus took the envelope; after the block only.

        Raises:
            Refused: the envelope is not sealed (``envelope_open``).
        """
        return self._envelope.receipt

    @property
    def queued(self) -> bool:
        """True once it is durable in the emitter's outbox, from where it goes to the bus."""
        return self._envelope.queued

    def event(
        self,
        type_name: str,
        estimate: int = 0,
        *,
        headers: Headers | None = None,
        partition_key: str | None = None,
    ) -> "Event":
        """Begin an event of the envelope, to be used in ``with``.

        Args:
            type_name: the event type.
            estimate: how many items will come, 0 where that is not known.
            headers: as at ``Emitter.envelope``, for this event alone. It has those of its envelope, too.
            partition_key: names what the event is about, as the number of a client: a text of 1 to 255 characters.

        Raises:
            Refused: a header can't be sent, as at ``Emitter.envelope``, or the key can't (``bad_partition_key``).
        """
        event = self._envelope.event(type_name, estimate, headers=headers, partition_key=partition_key)
        return Event(self._background, event)


class Event:
    """One event of an envelope. Made by ``Envelope.event``."""

    def __init__(self, background: Background, event: AsyncEvent) -> None:
        self._background = background
        self._event = event

    def __enter__(self) -> "Event":
        self._background.run(self._event.__aenter__())
        # In the place of the method below: an item pays for one call, and the other thread is entered once a batch.
        self.send = self._event.adder(self.flush)  # type: ignore[method-assign]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        vars(self).pop("send", None)
        self._background.run(self._event.__aexit__(kind, error, trace))

    @property
    def id(self) -> str:
        """The event's UUID as text."""
        return self._event.id

    def send(self, item: object, *, timeout: float | None = None) -> None:
        """Send one item: bytes as they are, any other value packed by msgpack, dates and the like as text.

        It goes with the next batch; this waits only while the window is full. An error of an earlier batch is raised
        here, or when the block is left.

        Args:
            item: bytes, or any value that msgpack can write.
            timeout: the most seconds to wait for the window; by default that of the envelope.

        Raises:
            Refused: the item or an earlier batch can't be taken; ``code`` says why.
            Failed: the bus did not take an earlier batch within ``retry_seconds``; or the window stayed full for
                ``timeout`` (``timed_out``). Then the item waits in its batch, and must not be sent again.
        """
        raise event_closed()

    def send_all(self, items: Iterable[object], *, timeout: float | None = None) -> None:
        """Send many items, faster than by a call of ``send`` for each::

            event.send_all({"number": number} for number in range(100_000))

        They go batch by batch while ``items`` makes more of them, and are not kept in memory together.

        Args:
            items: the items, each as of ``send``.
            timeout: as of ``send``, for each batch.

        Raises:
            Refused: as of ``send``; or ``items`` are a map, a text or bytes, which is one item (``bad_items``).
            Failed: as of ``send``.
        """
        for _ in self._event.fill(items):
            self.flush(timeout=timeout)

    def send_file(self, path: str | os.PathLike[str], *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file as the only content of the event, in pieces, so that it may be larger than memory::

            with envelope.event("contracts") as event:
                event.send_file("/out/contract.pdf")

        Recipients write it by ``event.save``. ``xbus.files`` says which items it becomes.

        Args:
            path: of a regular file. Nobody may write it meanwhile.
            name: for its recipients; by default the last part of ``path``.
            timeout: as of ``send``, for each piece.

        Raises:
            OSError: it can't be read. Then leave the block of the envelope by this exception, which cancels it.
            Refused: it is no regular file or changed meanwhile (``bad_file``), the event has items already
                (``event_has_items``), or as of ``send``.
            Failed: as of ``send``.
        """
        self._background.run(self._event.send_file(path, name=name, timeout=timeout))

    def flush(self, *, timeout: float | None = None) -> None:
        """Send what waits for company now.

        Args:
            timeout: as of ``send``.

        Raises:
            CallError: an earlier call went wrong.
        """
        self._background.run(self._event.flush(timeout=timeout))

    def reply(self, *, timeout: float | None = None) -> Value:
        """Give the immediate reply of a consumer, None if the event type has none; after the block only.

        Ask inside the envelope's block, and the envelope is sealed once the reply is there.

        Args:
            timeout: the most seconds to wait; by default that of the envelope.

        Raises:
            Refused: the event was not taken; ``code`` says why, as ``reply_refused`` where the consumer refused it.
            Failed: no reply came (``reply_failed``, ``reply_timed_out``); or the bus did not take the event within
                ``retry_seconds``.
        """
        return self._background.run(self._event.reply(timeout=timeout))
