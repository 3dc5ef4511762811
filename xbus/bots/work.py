"""The author's part of a run: it calls the function or runs the command, in whatever process."""

import importlib
import sys
import traceback
from collections.abc import Callable

from xbus.bots.commands import run_command
from xbus.bots.job import Outcome, RunJob
from xbus.bots.output import BotOutput
from xbus.errors import Refused, XbusError
from xbus.texts import fault, plain

RUN_FAILED = "run_failed"

MOST_ERROR_LETTERS = 4_000
"""Letters of an error that are told; the log of the run has all of it."""


def do_work(job: RunJob, output: BotOutput) -> None:
    """Call the function of a job, or run its command.

    Raises:
        Refused: the function does not exist (``call_not_found``), or as ``run_command`` says.
        Failed: the command ends with an error (``command_failed``).
    """
    if job.run["command"]:
        run_command(job, output)
    else:
        load_function(job.run["call"])(job.batch, output)


def failed(error: BaseException) -> Outcome:
    """Print the traceback of a failure, for the log of the run; give its outcome."""
    sys.stderr.write(plain("".join(traceback.format_exception(error))))
    if isinstance(error, XbusError):
        return Outcome(error.code, plain(error, MOST_ERROR_LETTERS))
    return Outcome(RUN_FAILED, fault(error, MOST_ERROR_LETTERS))


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
