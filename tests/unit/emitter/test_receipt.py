"""The receipt in an answer of the front."""

import pytest

from xbus.emitter import Receipt
from xbus.errors import Refused
from xbus.rpc.codec import Key, Value

ANSWER: dict[Key, Value] = {"envelope_id": "e", "position": 7, "events": 1, "items": 2, "hash": b"h"}


def test_an_answer_is_a_receipt() -> None:
    assert Receipt.of(ANSWER) == Receipt("e", 7, 1, 2, b"h")
    assert Receipt.of(ANSWER | {"queued": True, "later": "more"}) == Receipt("e", 7, 1, 2, b"h", queued=True)


@pytest.mark.parametrize("answer", [True, None, {}, ANSWER | {"position": "7"}])
def test_an_answer_of_another_form_is_refused(answer: Value) -> None:
    with pytest.raises(Refused) as caught:
        Receipt.of(answer)
    assert caught.value.code == "bad_answer"
