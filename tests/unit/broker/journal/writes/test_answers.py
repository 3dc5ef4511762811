"""Each write is answered by its handler with what its type says; mypy can't see it, as a table finds the handler."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, ForwardRef, get_args, get_type_hints

import pytest

from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements import _HANDLERS
from xbus.broker.journal.writes import bots, bulk

KINDS = [
    kind
    for module in (writes, bots, bulk)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, writes.Write)
]


def answer_of(write: Any) -> object:
    """The type of a write's answer."""
    (answer,) = get_args(write.__orig_bases__[0])
    return vars(import_module(write.__module__))[answer.__forward_arg__] if isinstance(answer, ForwardRef) else answer


def test_each_write_has_a_handler() -> None:
    assert set(_HANDLERS) == {kind for kind in KINDS if kind is not writes.Write}


@pytest.mark.parametrize(("write", "handler"), _HANDLERS.items(), ids=lambda item: item.__name__)
def test_a_handler_answers_with_the_type_of_its_write(write: type[object], handler: Callable[..., object]) -> None:
    answer = answer_of(write)
    given = get_type_hints(handler)["return"]
    (answers,) = get_args(given) or (given,)
    # One handler seals all kinds of envelopes, and answers each as its kind wants.
    assert answer == answers or answer in get_args(answers)
