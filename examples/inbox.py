"""A consumer that writes clients into a database of its own, each envelope exactly once, whatever dies."""

import os
import sys

import sqlalchemy as sa

from xbus.recipient import Consumer, Envelope, Event, Item, run
from xbus.recipient.inbox import Inbox

client = sa.Table("client", sa.MetaData(), sa.Column("name", sa.Text))


class Clients(Consumer):
    def on_start(self) -> None:
        self.inbox = Inbox("consumer_role")
        self.engine = sa.create_engine(os.environ.get("CLIENTS_DATABASE", "sqlite:///clients.db"))
        client.metadata.create_all(self.engine)
        self.inbox.create(self.engine)

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("clients", [])

    def on_item(self, event: Event, item: Item) -> None:
        event.envelope.state["clients"].append({"name": item.value["name"]})

    def commit(self, envelope: Envelope) -> None:
        with self.engine.begin() as connection:
            if self.inbox.note(connection, envelope.id) and envelope.state["clients"]:
                connection.execute(sa.insert(client), envelope.state["clients"])

    def on_stop(self) -> None:
        self.engine.dispose()


if __name__ == "__main__":
    back_url = sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:4891"
    run(Clients, back_url, login="consumer_role", password="password")
