"""Prints what came with each event."""

import sys

from xbus.recipient import Consumer, Event, run


class Telling(Consumer):
    def on_event_start(self, event: Event) -> None:
        told = ", ".join(f"{name} = {value}" for name, value in event.headers.items())
        print(f"{event.type_name} about {event.partition_key}: {told}", flush=True)


if __name__ == "__main__":
    back_url = sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:4891"
    run(Telling, back_url, login="consumer_role", password="password")
