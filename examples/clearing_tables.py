"""The tables of a data clearing database, with the names and columns that xbus.monitor 0.2.1 reads and writes."""

import sqlalchemy as sa

OPERATIONS = ("IGNORE", "SELECT", "WRITE", "CREATE", "S_CREATE", "W_CREATE", "DELETE")

metadata = sa.MetaData()

event_type = sa.Table(
    "event_type",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, index=True, unique=True),
    sa.Column("crud_op", sa.Enum("create", "update", "delete", name="event_type_crud_ops")),
    sa.Column("has_clearing", sa.Boolean),
    sa.Column("has_lookup", sa.Boolean),
    sa.Column("target_collection", sa.String),
    sa.Column("test_changes", sa.Boolean, default=True),
    comment="What comes over the bus.",
)

item_type = sa.Table(
    "item_type",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("object_name", sa.String(128), nullable=False),
    sa.Column("model_name", sa.Text, nullable=False),
    sa.Column("primary_table_name", sa.String(128)),
    sa.Column("display_name", sa.String(256)),
    sa.Column("id_column_name", sa.String(128)),
    sa.Column("optype", sa.Enum(*OPERATIONS, name="optype"), nullable=False),
    sa.Column("priority", sa.Integer),
    sa.Column("description", sa.Text),
    comment="What an item becomes here.",
)

item_join = sa.Table(
    "item_join",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("type_id", sa.ForeignKey("item_type.id", ondelete="CASCADE"), nullable=False),
    sa.Column("parent_id", sa.ForeignKey("item_join.id", ondelete="CASCADE")),
    sa.Column("display_name", sa.String(256)),
    sa.Column("left_column_name", sa.String(128)),
    sa.Column("right_table_name", sa.String(128)),
    sa.Column("right_column_name", sa.String(128)),
    comment="How the tables behind an item type hang together; this example has but one.",
)

item_column = sa.Table(
    "item_column",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("type_id", sa.ForeignKey("item_type.id", ondelete="CASCADE"), nullable=False),
    sa.Column("join_id", sa.ForeignKey("item_join.id", ondelete="SET NULL")),
    sa.Column("attribute_name", sa.String(128), nullable=False),
    sa.Column("field_name", sa.Text, nullable=False),
    sa.Column("column_name", sa.String(128)),
    sa.Column("display_name", sa.String(256)),
    sa.Column("data_type", sa.Enum("ANY", "M2O", name="column_data_type"), nullable=False, default="ANY"),
    sa.Column("related_type_id", sa.ForeignKey("item_type.id", ondelete="SET NULL")),
    sa.Column("is_clearable", sa.Boolean, nullable=False, default=True),
    *(
        sa.Column(name, sa.Boolean, nullable=False, default=False)
        for name in ("is_external_key", "is_dest_default", "is_protected", "is_required")
    ),
    comment="A field of an item type.",
)

item = sa.Table(
    "item",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("event_type_id", sa.ForeignKey("event_type.id", ondelete="RESTRICT"), nullable=False),
    sa.Column("type_id", sa.ForeignKey("item_type.id", ondelete="RESTRICT"), nullable=False),
    sa.Column("event_id", sa.Uuid(as_uuid=False), nullable=False),
    sa.Column("dest_id", sa.Integer),
    sa.Column("state", sa.Enum("new", "old", "cleared", name="item_state_data_type"), nullable=False, default="new"),
    sa.Column("batch", sa.Integer, sa.Sequence("item_batch_seq")),
    sa.Column("recv_date", sa.DateTime, nullable=False),
    sa.Column("sent_date", sa.DateTime),
    sa.Column("source_data", sa.LargeBinary, nullable=False),
    sa.Column("dest_data", sa.LargeBinary),
    sa.Column("out_data", sa.LargeBinary),
    sa.Column("unclearable_data", sa.LargeBinary),
    comment="What could not be understood, and what was made of it. Moments are in UTC, data are in msgpack.",
)

event_type_item_type_rel = sa.Table(
    "event_type_item_type_rel",
    metadata,
    sa.Column("event_type_id", sa.ForeignKey("event_type.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("item_type_id", sa.ForeignKey("item_type.id", ondelete="CASCADE"), primary_key=True),
)

# -- what this example keeps beside them -------------------------------------------------------------------------------

client = sa.Table(
    "client",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text),
    sa.Column("email", sa.Text, nullable=False),
    comment="The clients that were understood, or cleared.",
)

taken = sa.Table(
    "taken",
    metadata,
    sa.Column("envelope_id", sa.Uuid(as_uuid=False), primary_key=True),
    comment="The envelopes that are done: after a crash one of them may come again.",
)
