"""The log gets a table of contents, which the broker fills in the background from the oldest envelope on."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "contents",
        sa.Column("graph_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "block",
            sa.BigInteger(),
            autoincrement=False,
            nullable=False,
            comment="0 for the positions 1 to 1024, 1 for 1025 to 2048, and so on.",
        ),
        sa.Column(
            "positions",
            sa.LargeBinary(),
            nullable=False,
            comment="Envelopes of the block that hold events of the graph: bit 0 of byte 0 stands for its first position, bit 1 for its second, ... Some of them may have been removed since.",
        ),
        sa.Column(
            "events",
            sa.BigInteger(),
            nullable=False,
            comment="How many events of the graph the block held when listed.",
        ),
        sa.Column("items", sa.BigInteger(), nullable=False, comment="How many items these hold together."),
        sa.Column("oldest_at", MOMENT, nullable=False, comment="When the first of these envelopes was sealed."),
        sa.Column("newest_at", MOMENT, nullable=False, comment="When the last of them was."),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="fk_contents_graph_id"),
        sa.PrimaryKeyConstraint("graph_id", "block", name="pk_contents"),
        comment="The log's table of contents. A block is listed some time after its last envelope was sealed, all at once.",
    )
    op.create_index("ix_contents_block", "contents", ["block"])
    op.create_table(
        "contents_end",
        sa.Column("id", sa.Integer(), nullable=False, comment="Always 1."),
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            comment="All blocks up to here are listed; what lies above has to be read. The end of a block, or 0.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_contents_end"),
        sa.CheckConstraint("id = 1", name=op.f("ck_contents_end_one_row")),
        comment="One row: how far the table of contents reaches. Not a part of head, which sealing keeps busy.",
    )
    op.bulk_insert(sa.table("contents_end", sa.column("id"), sa.column("position")), [{"id": 1, "position": 0}])
