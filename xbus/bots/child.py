"""The process in which runs happen, one after another: it stays warm between those of a bot.

Jobs come as lines on standard input, and outcomes go as lines to the file whose number is the only argument. What the
author's code prints goes to standard output and standard error, which the runner reads.
"""

import importlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import BinaryIO

from xbus.bots.commands import run_command
from xbus.bots.job import Outcome, RunJob
from xbus.bots.output import BotOutput
from xbus.emitter import Emitter
from xbus.errors import Refused, XbusError

RUN_FAILED = "run_failed"


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
    """Do a job; whatever the author's code raises is its outcome."""
    run = job.run
    try:
        output = BotOutput(run["key"], run["emits"], run["repeated"], lambda: _emitter(job))
        with output:
            if run["command"]:
                run_command(job, output)
            else:
                load_function(run["call"])(job.batch, output)
    except XbusError as error:
        traceback.print_exc()
        return Outcome(error.code, str(error))
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        return Outcome(RUN_FAILED, f"{type(error).__name__}: {error}")
    return Outcome()


def _emitter(job: RunJob) -> Emitter:
    return Emitter(job.front, job.run["login"], job.run["ticket"])


def load_function(call: str) -> Callable[..., object]:
    """Import the function that ``module:function`` names.

    Raises:
        Refused: the module or the function does not exist (``call_not_found``).
    """
    module_name, _, path = call.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the module itself lacks another one, its own traceback says so.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise _not_found(f'there is no module "{module_name}" at the runner') from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise _not_found(f'"{path}" in {module_name} is no function')
    return found


def _not_found(cause: str) -> Refused:
    return Refused(cause, "run xbus bot run where it can be imported, or correct call", code="call_not_found")


if __name__ == "__main__":
    main()
