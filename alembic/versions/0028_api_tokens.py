"""Emitters and roles have API tokens, by which programs call without a login."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "api_token",
        sa.Column("id", COUNTER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False, comment="What operators call it."),
        sa.Column(
            "token_hash",
            sa.LargeBinary(32),
            nullable=False,
            comment="SHA-256 of the token; the token itself is not kept.",
        ),
        sa.Column("emitter_id", COUNTER, comment="The emitter whose it is at the front; null for none."),
        sa.Column("role_id", COUNTER, comment="The role whose it is at the back; null for none."),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("used_at", MOMENT, comment="When it was last used, to ten seconds; null for never."),
        sa.CheckConstraint("emitter_id IS NOT NULL OR role_id IS NOT NULL", name=op.f("ck_api_token_owner")),
        sa.ForeignKeyConstraint(["emitter_id"], ["emitter.id"], name="fk_api_token_emitter_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_api_token_role_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_token"),
        sa.UniqueConstraint("name", name="uq_api_token_name"),
        sa.UniqueConstraint("token_hash", name="uq_api_token_token_hash"),
        comment="A session without a login and without an end: an operator makes it, and revokes it.",
    )


def downgrade() -> None:
    op.drop_table("api_token")
