"""The author's part of a run: it calls the function or runs the command, in whatever process."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from types import ModuleType

from xbus.bots.commands import run_command
from xbus.bots.job import Allowed, Outcome, RunJob
from xbus.bots.output import BotOutput
from xbus.errors import Refused, XbusError
from xbus.texts import fault, plain

RUN_FAILED = "run_failed"

MOST_ERROR_LETTERS = 4_000
"""Letters of an error that are told; the log of the run has all of it."""

MOST_CODE_LETTERS = 64
"""Letters of a code that are told, as many as the broker keeps."""


def do_work(job: RunJob, output: BotOutput) -> None:
    """Call the function of a job, or run its command.

    Raises:
        Refused: the function does not exist (``call_not_found``), the runner does not allow it or the command
            (``not_allowed``), or as ``run_command`` says.
        Failed: the command ends with an error (``command_failed``).
    """
    command = job.run["command"]
    if not command:
        load_function(job.run["call"], job.allowed)(job.batch, output)
    elif job.allowed.has_program(command[0]):
        run_command(job, output)
    else:
        raise _not_allowed(f'the program "{command[0]:.200}"')


def failed(error: BaseException) -> Outcome:
    """Print the traceback of a failure, for the log of the run; give its outcome."""
    sys.stderr.write(plain("".join(traceback.format_exception(error))))
    if isinstance(error, XbusError):
        # An author's class may have any code.
        return Outcome(plain(error.code, MOST_CODE_LETTERS), plain(error, MOST_ERROR_LETTERS))
    return Outcome(RUN_FAILED, fault(error, MOST_ERROR_LETTERS))


def load_function(call: str, allowed: Allowed) -> Callable[..., object]:
    """Import the function that ``module:function`` names.

    Raises:
        Refused: the module or the function does not exist (``call_not_found``), or the runner does not allow the
            module, or the one to which the function belongs (``not_allowed``).
    """
    module_name, _, path = call.partition(":")
    if not allowed.has_module(module_name):
        raise _not_allowed(f'the module "{module_name:.200}"')
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the module itself lacks another one, its own traceback says so.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise _not_found(f'there is no module "{module_name}" at the runner') from None
    for name in path.split("."):
        found = getattr(found, name, None)
        # A module that is allowed may have imported others: "reports:os.system" is none of its functions.
        home = _home(found)
        if home is not None and not allowed.has_module(home):
            raise _not_allowed(f'"{path:.200}" of the module {home}')
    if not callable(found):
        raise _not_found(f'"{path}" in {module_name} is no function')
    return found


def _home(found: object) -> str | None:
    """Name the module of a function or a class, and of a module itself; None for other objects."""
    if isinstance(found, ModuleType):
        return found.__name__
    # Builtins that are bound to an object have None.
    return found.__module__ if inspect.isroutine(found) or inspect.isclass(found) else None


def _not_allowed(what: str) -> Refused:
    return Refused(
        f"this runner does not allow {what}",
        "start xbus bot run with --allow or --allow-command, or have another runner do it",
        code="not_allowed",
    )


def _not_found(cause: str) -> Refused:
    return Refused(cause, "run xbus bot run where it can be imported, or correct call", code="call_not_found")
