"""The reader for ordinary, blocking programs: a thin face over the asynchronous one."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Unpack

from xbus.clock import Clock
from xbus.emitter.background import HostedClient
from xbus.reader.asynchronous import AsyncLogView, AsyncReader
from xbus.reader.batch import EventBatch, ReaderBatch
from xbus.reader.options import ReaderKeywords


class Reader:
    """Reads the batches of a reader of the bus::

        with Reader("tcp://127.0.0.1:4891", "billing_1", "password") as reader:
            for batch in reader:
                for item in batch:
                    bill(item.value)
                batch.done()

    Several programs of a reader share its ranges by themselves: just start another one. A thread of its own renews the
    leases while the program works. A batch that is not ``done`` when a program ends is delivered again, as the same
    batch.

    Args:
        url: the back socket of the bus, such as ``tcp://127.0.0.1:4891``; or, for an encrypted connection,
            ``xbus://login@host:port?key=...&client_key=FILE``, as docs/keys.md explains.
        login: the login of a role of the reader; by default that of ``url``.
        password: its password; by default that of the ``password_file`` in ``url``, or of the environment variable
            ``XBUS_PASSWORD``.
        clock: tells the time; the machine's own where none is given.
        program: the id of the program; a new one by default. Give one to go on as the same program after a restart.
        **options: see ``ReaderOptions``.

    Raises:
        ConfigurationError: ``url`` makes no sense, or names a key file that can't be used; login or password are
            missing.
        Refused: at ``with``: login or password are wrong (``login_refused``). Later: the broker is too old for readers
            (``readers_unsupported``), the role is not a reader's (``not_a_reader``).
        Failed: at ``with``: nothing answers at ``url`` within ``open_seconds``.
    """

    def __init__(
        self,
        url: str,
        login: str = "",
        password: str = "",
        *,
        clock: Clock | None = None,
        program: uuid.UUID | None = None,
        **options: Unpack[ReaderKeywords],
    ) -> None:
        self._reader = AsyncReader(url, login, password, clock=clock, program=program, **options)
        self._hosted = HostedClient("reader", self._reader)

    def __enter__(self) -> "Reader":
        self._hosted.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hosted.close(kind, error, trace)

    def __iter__(self) -> Iterator[ReaderBatch]:
        while True:
            yield self._hosted.run(self._reader.next_kept())

    def next_batch(self) -> ReaderBatch:
        """Wait for the next batch, and note with the same call that the former one is done.

        Raises:
            Refused: the former batch is not done (``batch_not_done``), or its range was lost (``lease_lost``): the next
                call reads on. A program that iterates does so without the error.
            Failed: nothing answered within ``retry_seconds``.
        """
        return self._hosted.run(self._reader.next_batch())

    def at(
        self, start: str | datetime, *, types: Sequence[str] | None = None, follow: bool = False
    ) -> Iterator[EventBatch]:
        """Read the log from a place on, without a lease and without a checkpoint.

        Args:
            start: a place as 1234 or 1234:0:500, a moment, ``oldest`` or ``head``. Moments are in ISO 8601, by default
                in UTC.
            types: the event types that are wanted; None for all of the reader.
            follow: whether to wait for more at the end of the log, for ever.

        Raises:
            Refused: at the first batch: the start is none (``place_invalid``, ``moment_invalid``,
                ``place_beyond_end``), a type is unknown (``type_unknown``) or not the reader's (``type_not_read``).
        """
        return self._batches(self._reader.at(start, types=types, follow=follow))

    def for_key(
        self,
        key: str,
        start: str | datetime = "oldest",
        *,
        types: Sequence[str] | None = None,
        follow: bool = False,
    ) -> Iterator[EventBatch]:
        """Read the events of a partition key, or of an ordering key where they have none, as ``at`` does.

        Args:
            key: the key.
            start: as at ``at``.
            types: the same.
            follow: the same.
        """
        return self._batches(self._reader.for_key(key, start, types=types, follow=follow))

    def _batches(self, view: AsyncLogView) -> Iterator[EventBatch]:
        while (batch := self._hosted.run(view.next_batch())) is not None:
            yield batch
