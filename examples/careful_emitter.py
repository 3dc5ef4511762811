"""Tells apart what must be corrected and what may go well later."""

import sys

from xbus.emitter import Emitter
from xbus.errors import Failed, Refused


def main(url: str = "tcp://127.0.0.1:1984") -> None:
    try:
        with Emitter(url, "test_emitter", "password", retry_seconds=5) as emitter:
            emitter.put("invoice", [{"number": 1}], timeout=10)
    except Refused as refusal:
        print("correct this first:", refusal.code, "-", refusal.cause, "-", refusal.next_step)
    except Failed as failure:
        print("try again later:", failure.code, "-", failure.cause)


if __name__ == "__main__":
    main(*sys.argv[1:])
