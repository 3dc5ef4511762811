"""Items of 200 bytes: records as programs send them, which a database can compress about as well as real ones."""

import json
import random

from xbus.rpc.codec import pack

ITEM_BYTES = 200
VARIETY = 1_000


def sample() -> list[bytes]:
    """A thousand different items."""
    dice = random.Random(200)
    return [_record(dice) for _ in range(VARIETY)]


def sample_msgpack() -> list[bytes]:
    """The same values in msgpack, which takes 173 bytes for each."""
    return [pack(json.loads(text)) for text in sample()]


def _record(dice: random.Random) -> bytes:
    number = dice.randrange(10**9)
    client = dice.randbytes(8).hex()
    amount = dice.random() * 10_000
    text = f'{{"invoice": {number}, "client": "{client}", "amount": {amount:.2f}, "currency": "EUR", "note": "'
    return (text + dice.randbytes(ITEM_BYTES).hex()).encode()[: ITEM_BYTES - 2] + b'"}'
