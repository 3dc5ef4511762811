"""Programs that fork while an emitter is open; what each of their processes tells is a line of standard output.

Run as ``python -m tests.support.forking SCENARIO URL [OUTBOX]``. Every child ends as a program does that comes to its
end, so that Python removes all that it holds: a parent that goes on unharmed has nothing that a child closed.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xbus.emitter import AsyncEmitter, Emitter
from xbus.emitter.outbox import Outbox
from xbus.errors import XbusError

LOGIN = ("emitter_1", "password")
ALARM_SECONDS = 60
"""A process that hangs is ended after this, by a signal that no exit code hides."""

FORKS = 30


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def forked(work: Callable[[], Any]) -> int:
    """Do something in a child, which then ends in order; its process id."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(ALARM_SECONDS)
        work()
        sys.exit(0)
    return pid


def awaited(*pids: int) -> None:
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        tell("ended", os.waitstatus_to_exitcode(status))


def refusal(work: Callable[[], Any]) -> None:
    try:
        work()
    except XbusError as error:
        tell("refused", error.code)


def children(url: str) -> None:
    """Two children send by the emitter of their parent, from two threads each; the parent has an envelope open."""

    def send(emitter: Emitter, name: str) -> None:
        threads = [threading.Thread(target=emitter.put, args=("numbers", [f"{name}{n}"])) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(ALARM_SECONDS)

    with Emitter(url, *LOGIN) as emitter:
        with emitter.envelope() as envelope, envelope.event("numbers") as event:
            event.send("before")
            awaited(*[forked(lambda name=name: send(emitter, name)) for name in ("a", "b")])  # type: ignore[misc]
            event.send("after")
        tell("parent", envelope.receipt.items)
        emitter.put("numbers", ["parent"])


def envelope_of_parent(url: str) -> None:
    """A child goes on with the envelope of its parent, by each of its doors."""

    with Emitter(url, *LOGIN, batch_items=2) as emitter:
        made = emitter.envelope()
        with emitter.envelope() as envelope:
            with envelope.event("numbers") as ended:
                ended.send("first")
            with envelope.event("numbers") as event:
                event.send("second")

                def fill_a_batch() -> None:
                    for number in range(2):
                        event.send(number)

                def go_on() -> None:
                    refusal(fill_a_batch)
                    refusal(event.flush)
                    refusal(lambda: tell("known", ended.reply()))
                    refusal(lambda: event.__exit__(None, None, None))
                    refusal(lambda: envelope.event("numbers").__enter__().flush())
                    refusal(lambda: envelope.__exit__(None, None, None))
                    refusal(made.__enter__)

                awaited(forked(go_on))
        tell("parent", envelope.receipt.items)


def asynchronous(url: str) -> None:
    """A child runs a loop of its own, and sends by the emitter that is open in that of its parent."""

    async def send(emitter: AsyncEmitter, *names: str) -> None:
        await asyncio.gather(*(emitter.put("numbers", [name]) for name in names))

    async def parent() -> None:
        async with AsyncEmitter(url, *LOGIN) as emitter:
            async with emitter.envelope() as envelope, envelope.event("numbers") as event:
                await event.send("before")

                def child() -> None:
                    asyncio.run(send(emitter, "a", "b"))
                    refusal(lambda: asyncio.run(event.flush()))
                    os._exit(0)

                awaited(forked(child))
                await event.send("after")
            tell("parent", envelope.receipt.items)

    asyncio.run(parent())


def grandchild(url: str) -> None:
    """A pool forks, and its children fork again; a child that never sends, or not before it ends, is no harm."""
    with Emitter(url, *LOGIN) as emitter:
        awaited(forked(lambda: None))

        def child() -> None:
            signal.alarm(ALARM_SECONDS)
            emitter.put("numbers", ["child"])
            awaited(forked(lambda: emitter.put("numbers", ["grandchild"])))
            emitter.put("numbers", ["child again"])

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(ALARM_SECONDS)
        tell("ended", process.exitcode)
        emitter.put("numbers", ["parent"])


def outbox(url: str, path: str) -> None:
    """A child finds the outbox of its parent taken, and free once the parent is done with it."""
    read, write = os.pipe()
    with Emitter(url, *LOGIN, outbox=path) as emitter:
        emitter.put("numbers", ["parent"])

        def child() -> None:
            refusal(lambda: emitter.put("numbers", ["taken"]))
            tell("asked")
            os.read(read, 1)
            emitter.put("numbers", ["child"])

        pid = forked(child)
        emitter.put("numbers", ["parent again"])
        with Emitter(url, *LOGIN, outbox=f"{path}.2") as other:
            idle = forked(lambda: os.read(read, 1))
            other.put("numbers", ["other"])
        # The idle child has a copy of all that was open, and keeps nothing taken.
        with Emitter(url, *LOGIN, outbox=f"{path}.2") as other:
            other.put("numbers", ["other again"])
    os.write(write, b"xx")
    awaited(pid, idle)


def busy_outbox(url: str, path: str) -> None:
    """Children write to outboxes of their own, forked at any moment while a thread of the parent writes to another."""
    is_over = threading.Event()

    def write(number: str) -> None:
        box = Outbox(Path(f"{path}.{number}"))
        box.start_envelope("E", "key", None)
        box.close()

    def keep_writing() -> None:
        while not is_over.is_set():
            write("parent")

    thread = threading.Thread(target=keep_writing)
    thread.start()
    for number in range(FORKS):
        awaited(forked(lambda number=number: write(number)))  # type: ignore[misc]
    is_over.set()
    thread.join(ALARM_SECONDS)


if __name__ == "__main__":
    signal.alarm(2 * ALARM_SECONDS)
    globals()[sys.argv[1]](*sys.argv[2:])
