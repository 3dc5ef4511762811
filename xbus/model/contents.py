"""The log's table of contents: where events of each graph lie, so that nobody reads all to find a rare one."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, LargeBinary, Table

from xbus.model.base import Timestamp, metadata, required

contents = Table(
    "contents",
    metadata,
    Column("graph_id", ForeignKey("graph.id"), primary_key=True),
    Column(
        "block",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="0 for the positions 1 to 1024, 1 for 1025 to 2048, and so on.",
    ),
    required(
        "positions",
        LargeBinary,
        comment="Envelopes of the block that hold events of the graph: bit 0 of byte 0 stands for its first position, "
        "bit 1 for its second, ... Some of them may have been removed since.",
    ),
    required("events", BigInteger, comment="How many events of the graph the block held when listed."),
    required("items", BigInteger, comment="How many items these hold together."),
    required("oldest_at", Timestamp, comment="When the first of these envelopes was sealed."),
    required("newest_at", Timestamp, comment="When the last of them was."),
    Index("ix_contents_block", "block"),
    comment="The log's table of contents. A block is listed some time after its last envelope was sealed, all at once.",
)

contents_end = Table(
    "contents_end",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, comment="Always 1."),
    required(
        "position",
        BigInteger,
        comment="All blocks up to here are listed; what lies above has to be read. The end of a block, or 0.",
    ),
    comment="One row: how far the table of contents reaches. Not a part of head, which sealing keeps busy.",
)
