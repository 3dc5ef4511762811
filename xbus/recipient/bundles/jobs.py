"""Jobs of the author's thread for whole bundles: each envelope has an answer of its own.

Behind an envelope that failed none is begun: the author's database may be away, and all would fail alike. A refusal
leaves the others alone.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from xbus.recipient.bundles.steps import OUTPUT_BYTES, BundleAnswer, BundleStep, answer_of
from xbus.recipient.calls import Calls
from xbus.recipient.delivery import EnvelopeDelivery

BundleJob: TypeAlias = Callable[[], list[BundleAnswer]]


def carry_out_all(steps: Sequence[BundleStep], is_closing: Callable[[], bool]) -> BundleJob:
    """Make the job that carries out a bundle: each envelope is committed or rolled back before the next one begins.

    Args:
        is_closing: whether the recipient is about to stop; then no other envelope is begun.
    """
    room = OUTPUT_BYTES

    def carry_out(step: BundleStep) -> BundleAnswer:
        nonlocal room
        answer = step.carry_out()
        room -= step.made_bytes
        return answer

    return lambda: _one_by_one([partial(carry_out, step) for step in steps], lambda: is_closing() or room < 0)


def prepare_all(steps: Sequence[BundleStep], is_closing: Callable[[], bool]) -> BundleJob:
    """Make the job that prepares a bundle: each envelope stays open for a decision, or is rolled back.

    Args:
        is_closing: whether the recipient is about to stop; then no other envelope is begun.
    """
    return lambda: _one_by_one([step.prepare for step in steps], is_closing)


def commit_all(calls: Calls, deliveries: Sequence[EnvelopeDelivery]) -> BundleJob:
    """Make the job that commits prepared envelopes; one that can't be committed stays open until it is stopped."""
    return lambda: _one_by_one([partial(_commit, calls, delivery) for delivery in deliveries], lambda: False)


def _commit(calls: Calls, delivery: EnvelopeDelivery) -> BundleAnswer:
    def work() -> tuple[()]:
        calls.commit(delivery.envelope)
        return ()

    return answer_of(delivery, work)


def _one_by_one(works: Iterable[Callable[[], BundleAnswer]], is_over: Callable[[], bool]) -> list[BundleAnswer]:
    answers: list[BundleAnswer] = []
    ended = False
    for work in works:
        answers.append(() if ended else work())
        ended = ended or answers[-1][0] is None or is_over()
    return answers
