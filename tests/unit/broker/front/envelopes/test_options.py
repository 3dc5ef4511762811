"""What may be said of an envelope when it begins."""

from typing import Any, cast

import pytest

from xbus.broker.front.envelopes.checks import LONGEST, head_of
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import Refused
from xbus.rpc.messages import EnvelopeOptionsMap


def read(options: dict[Any, Any] | None) -> EnvelopeHead:
    """What a caller wrote, which may be anything."""
    return head_of(cast("EnvelopeOptionsMap | None", options))


@pytest.mark.parametrize("options", [None, {}, {"ordering_key": None}])
def test_nothing_need_be_said(options: dict[Any, Any] | None) -> None:
    assert read(options) == PLAIN_HEAD


@pytest.mark.parametrize("name", LONGEST)
def test_each_option_takes_a_text_up_to_its_length(name: str) -> None:
    longest: Any = "é" * LONGEST[name]
    assert read({name: longest}) == PLAIN_HEAD._replace(**{name: longest})
    wrongs: list[Any] = ["", longest + "é", "zero\0", b"bytes", 7, True, []]
    for wrong in wrongs:
        with pytest.raises(Refused, match=name) as refusal:
            read({name: wrong})
        assert refusal.value.code == "wrong_arguments"


@pytest.mark.parametrize("name", ["colour", 7, None, b"ordering_key"])
def test_others_are_refused(name: Any) -> None:
    with pytest.raises(Refused, match="no option") as refusal:
        read({name: "x"})
    assert refusal.value.code == "wrong_arguments"
