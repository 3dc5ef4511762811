"""A broker notes what it has read of the configuration, so that an examination finds rows that damage has changed."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "imprint",
        sa.Column("table_name", sa.String(63), nullable=False, comment="The table of the configuration."),
        sa.Column(
            "version",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
            comment="The version of the configuration, the same for all tables.",
        ),
        sa.Column(
            "hashes",
            sa.LargeBinary(),
            nullable=False,
            comment="The hash of each of its rows, 8 bytes each, ascending.",
        ),
        sa.PrimaryKeyConstraint("table_name", name="pk_imprint"),
        comment="What a broker has read of the configuration. `xbus fsck` finds rows by it that damage has changed.",
    )


def downgrade() -> None:
    op.drop_table("imprint")
