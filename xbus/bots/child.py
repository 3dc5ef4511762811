"""The process that executes runs, one after another: it stays warm between runs of a bot.

Jobs come as lines on standard input, and outcomes go as lines to the file whose number is the only argument. The
author's code prints to standard output and standard error, which the runner reads.
"""

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

from xbus.bots.job import Outcome, RunJob
from xbus.bots.output import BotOutput
from xbus.bots.work import do_work, failed
from xbus.emitter import Emitter


def main() -> None:
    """Carry out jobs until the runner closes its end, or dies."""
    jobs: queue.SimpleQueue[RunJob] = queue.SimpleQueue()
    # The author's code must not read what is meant for us.
    source = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path.insert(0, "")
    threading.Thread(target=_read, args=(source, jobs), daemon=True).start()
    with os.fdopen(int(sys.argv[1]), "wb", buffering=0) as outcomes:
        while True:
            outcome = carry_out(jobs.get())
            sys.stdout.flush()
            sys.stderr.flush()
            outcomes.write(outcome.line())


def _read(source: BinaryIO, jobs: "queue.SimpleQueue[RunJob]") -> None:
    for line in source:
        jobs.put(RunJob.read(line))
    # The runner is gone: nobody keeps the lease of what runs here. Commands are in the same group.
    os.killpg(0, signal.SIGKILL)


def carry_out(job: RunJob) -> Outcome:
    """Do a job, and put its output on the bus; whatever the author's code raises is its outcome."""
    run = job.run
    try:
        with BotOutput(run["key"], run["emits"], run["repeated"], lambda: _emitter(job)) as output:
            do_work(job, output)
    except (Exception, SystemExit) as error:
        return failed(error)
    return Outcome()


def _emitter(job: RunJob) -> Emitter:
    return Emitter(job.front, job.run["login"], job.run["ticket"])


if __name__ == "__main__":
    main()
