"""The database of the clearing example: clients, and what was meant to become one."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Table, create_engine, delete, insert, select, update

from examples.clearing_tables import (
    client,
    event_type,
    event_type_item_type_rel,
    item,
    item_column,
    item_type,
    metadata,
    taken,
)
from xbus.rpc.codec import pack, unpack

FIELDS = {"number": "Number", "name": "Name", "email": "E-mail address"}
"""The fields of a client, and what a person calls them."""


class ClearingStore:
    """One connection with one transaction at a time.

    Args:
        url: the database; its tables are made where they are missing.
    """

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)
        metadata.create_all(self._engine)
        self._connection = self._engine.connect()
        self._types = self._known_types() or self._describe_clients()
        self._connection.commit()

    def has_taken(self, envelope_id: str) -> bool:
        """Whether the envelope was committed before."""
        return self._connection.execute(select(taken).filter_by(envelope_id=envelope_id)).first() is not None

    def put_client(self, fields: dict[str, Any]) -> None:
        """Write a client; the newer one stands."""
        self._connection.execute(delete(client).filter_by(number=fields["number"]))
        self._connection.execute(insert(client).values({name: fields.get(name) for name in FIELDS}))

    def keep(self, event_id: str, fields: dict[str, Any]) -> None:
        """Put aside what is no client yet."""
        number = fields.get("number")
        event_type_id, item_type_id = self._types
        row = {
            "event_type_id": event_type_id,
            "type_id": item_type_id,
            "event_id": event_id,
            "dest_id": number if isinstance(number, int) else None,
            "recv_date": _now(),
            "source_data": pack(fields),
        }
        self._connection.execute(insert(item).values(row))

    def details(self, item_id: int) -> dict[str, Any] | None:
        """What a monitor shows of an item, in the form that its page for clearing reads; None for an unknown one."""
        row = self._connection.execute(select(item).filter_by(id=item_id)).mappings().first()
        if row is None:
            return None
        return {
            **{name: row[name] for name in ("id", "event_id", "event_type_id", "type_id", "state")},
            **{name: row[name] and row[name].isoformat() for name in ("recv_date", "sent_date")},
            **{name: unpack(row[name]) if row[name] else {} for name in ("source_data", "dest_data", "out_data")},
            "current_data": self._client(row["dest_id"]),
            # What a relation's value is called; a client has no relations.
            **{f"{kind}_data_names": {} for kind in ("source", "current", "dest", "out")},
            "display": FIELDS,
            "key_fields": ["number"],
            "dest_default_fields": [],
        }

    def clear(self, item_id: int, fields: dict[str, Any]) -> None:
        """Note what was made of an item, and what had been there instead."""
        changes = {
            "state": "cleared",
            "sent_date": _now(),
            "dest_data": pack(self._client(fields["number"])),
            "out_data": pack(fields),
        }
        self._connection.execute(update(item).filter_by(id=item_id).values(changes))

    def commit(self, envelope_id: str) -> None:
        """Make it last."""
        if not self.has_taken(envelope_id):
            self._connection.execute(insert(taken).values(envelope_id=envelope_id))
        self._connection.commit()

    def rollback(self) -> None:
        """Forget what was not committed."""
        self._connection.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._engine.dispose()

    def _client(self, number: int | None) -> dict[str, Any]:
        row = self._connection.execute(select(client).filter_by(number=number)).mappings().first()
        return {} if row is None else dict(row)

    def _known_types(self) -> Any:
        return self._connection.execute(select(event_type_item_type_rel)).first()

    def _describe_clients(self) -> Any:
        """Tell monitors what an event of clients is made of."""
        (event_type_id,) = self._add(event_type, name="client", has_clearing=True)
        (item_type_id,) = self._add(
            item_type,
            object_name="client",
            model_name="client",
            primary_table_name="client",
            display_name="Client",
            id_column_name="number",
            optype="CREATE",
        )
        for name, display_name in FIELDS.items():
            self._add(
                item_column,
                type_id=item_type_id,
                attribute_name=name,
                field_name=name,
                column_name=name,
                display_name=display_name,
                is_required=name != "name",
            )
        return self._add(event_type_item_type_rel, event_type_id=event_type_id, item_type_id=item_type_id)

    def _add(self, table: Table, **row: Any) -> Any:
        """Write a row; its primary key."""
        return self._connection.execute(insert(table).values(row)).inserted_primary_key


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
