"""Items in the clearing database of a consumer, on both kinds of database."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from examples.clearing_store import ClearingStore
from xbus.broker.journal.database.clearing_items import read_clearing_items
from xbus.rpc.codec import unpack

EVENT = "9b2f3c1e-0000-4000-8000-000000000001"
ADA = {"number": 1, "name": "Ada"}
GRACE = {"number": 2, "name": "Grace"}


def test_items_are_read_as_the_consumer_keeps_them(empty_database_url: str) -> None:
    store = ClearingStore(empty_database_url)
    store.keep(EVENT, ADA)
    store.keep(EVENT, GRACE)
    store.clear(1, ADA | {"email": "ada@example.org"})
    store.commit(EVENT)
    store.close()
    (new,) = read_clearing_items(empty_database_url, "new", None, 20)
    assert (new.id, new.state, new.type, new.item_type, new.event_id) == (2, "new", "client", "Client", UUID(EVENT))
    assert unpack(new.data) == GRACE
    assert new.cleared_at is None
    assert new.received_at is not None
    assert timedelta() <= datetime.now(UTC) - new.received_at < timedelta(hours=1)
    both = read_clearing_items(empty_database_url, None, None, 20)
    assert [(item.id, item.state) for item in both] == [(2, "new"), (1, "cleared")]
    assert both[1].cleared_at is not None
    assert [item.id for item in read_clearing_items(empty_database_url, None, 2, 20)] == [1]
    assert [item.id for item in read_clearing_items(empty_database_url, None, None, 1)] == [2]
