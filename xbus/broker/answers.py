"""Translates errors for the wire: into the old words of wire.md, or into a code."""

import asyncio
import functools
import logging
from collections.abc import Callable
from types import CoroutineType
from typing import NoReturn, TypeVar, cast

from xbus.errors import CallError, EventIdTaken, Failed, JournalError, JournalUnavailable, Refused, XbusError
from xbus.rpc.deferred import Deferred
from xbus.rpc.dispatch import REFUSE

log = logging.getLogger(__name__)

Verb = TypeVar("Verb", bound=Callable[..., object])
T = TypeVar("T")


def old_answer(refusal: T) -> Callable[[Verb], Verb]:
    """Let a verb of wire.md answer ``refusal`` instead of an error; log the cause, which the caller can't get."""

    def refuse(error: XbusError, name: str) -> T:
        log.info("%s refused: %s", name, error, extra={"action": "refused", "verb": name, "code": error.code})
        return refusal

    return _translated(refuse)


def coded_answer(verb: Verb) -> Verb:
    """Have a verb of our own raise only what the wire can carry."""
    return _translated(recode)(verb)


def promised_answer(verb: Verb) -> Verb:
    """Have a verb of our own whose answer is a promise raise only what the wire can carry.

    An error that it raises itself goes through ``recode``. The error of its promise is translated where the call is
    answered.
    """
    setattr(verb, REFUSE, functools.partial(_translated_error, recode, verb.__name__))
    return verb


def on_wire(error: XbusError) -> CallError:
    """Reduce the error to what a caller may see: the words of the database stay in the log."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, JournalUnavailable):
        return Failed("the journal can't be written or read now", "repeat the call later", code=error.code)
    if isinstance(error, JournalError) and not isinstance(error, EventIdTaken):
        return Failed("the journal could not take this", "see the broker's log for the reason", code=error.code)
    return Refused(error.cause, error.next_step, code=error.code)


def recode(error: XbusError, name: str) -> NoReturn:
    """Raise what the wire can carry of an error of a verb of our own, and log the error."""
    log.info("%s refused: %s", name, error, extra={"action": "refused", "verb": name, "code": error.code})
    raise on_wire(error)


def _translated(translate: Callable[[XbusError, str], object]) -> Callable[[Verb], Verb]:
    def decorate(verb: Verb) -> Verb:
        name = verb.__name__
        recover = functools.partial(_translated_error, translate, name)

        @functools.wraps(verb)
        def translated(*args: object) -> object:
            try:
                outcome = verb(*args)
            except XbusError as error:
                return translate(error, name)
            if isinstance(outcome, CoroutineType):
                outcome = asyncio.get_running_loop().create_task(outcome, name=name)
            if isinstance(outcome, (Deferred, asyncio.Future)):
                return (outcome if isinstance(outcome, Deferred) else Deferred(outcome)).recover(recover)
            return outcome

        setattr(translated, REFUSE, recover)
        return cast(Verb, translated)

    return decorate


def _translated_error(translate: Callable[[XbusError, str], T], name: str, error: Exception) -> T:
    if isinstance(error, XbusError):
        return translate(error, name)
    raise error
