"""``python -m tests.support.junk ADDRESS PER_SECOND SECONDS``: a stranger that sends messages which are no requests."""

import sys
import time

import zmq

TURN_SECONDS = 0.01


def flood(address: str, per_second: int, seconds: float) -> int:
    """Send junk at a steady pace; give how many messages were sent."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            try:
                while sent < passed * per_second:
                    socket.send(b"this is no request", zmq.NOBLOCK)
                    sent += 1
            except zmq.Again:
                pass
            time.sleep(TURN_SECONDS)
    return sent


if __name__ == "__main__":
    print(flood(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))  # noqa: T201
