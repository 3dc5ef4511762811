"""Sends dates, decimal numbers and objects of its own."""

import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from xbus.emitter import Emitter


@dataclass
class Address:
    street: str
    city: str


def pack(value: object) -> object:
    if isinstance(value, Address):
        return {"street": value.street, "city": value.city}
    raise TypeError("only addresses are packed here")


def main(url: str = "tcp://127.0.0.1:1984") -> None:
    home = Address("Main Road 1", "London")
    with Emitter(url, "test_emitter", "password", pack=pack) as emitter:
        emitter.put("test_event", [{"name": "Ada", "at": home, "since": date(2026, 5, 4), "total": Decimal("12.50")}])
        print("sent")


if __name__ == "__main__":
    main(*sys.argv[1:])
