"""The monitor keeps samples of how much came, and of how far the roles lagged."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "sample",
        sa.Column(
            "step",
            sa.Integer(),
            autoincrement=False,
            nullable=False,
            comment="Seconds: 10 for a sample as it was taken, 60 and 900 for what several of them came to.",
        ),
        sa.Column(
            "began_at",
            MOMENT,
            nullable=False,
            comment="The end of the sample before it. So of two monitors that go on from the same sample one is too "
            "late.",
        ),
        sa.Column("ended_at", MOMENT, nullable=False),
        sa.Column("observed", sa.Float(), nullable=False, comment="Seconds of it in which a monitor ran."),
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            comment="The end of the log at its end: the next one counts on.",
        ),
        sa.Column("envelopes", sa.BigInteger(), nullable=False, comment="How many envelopes were received in it."),
        sa.Column(
            "events",
            sa.BigInteger(),
            nullable=False,
            comment="How many events these have; an estimate where many came.",
        ),
        sa.Column(
            "items",
            sa.BigInteger(),
            nullable=False,
            comment="How many items these have; an estimate where many came.",
        ),
        sa.Column(
            "lag",
            sa.BigInteger(),
            nullable=False,
            comment="The most envelopes that all roles together lacked in it.",
        ),
        sa.Column(
            "lag_seconds",
            sa.Float(),
            nullable=False,
            comment="The greatest age of an envelope in it that a role lacked.",
        ),
        sa.Column(
            "parked",
            sa.BigInteger(),
            nullable=False,
            comment="The most envelopes and items that were parked in it.",
        ),
        sa.Column(
            "parts",
            sa.JSON(none_as_null=True),
            nullable=False,
            comment='A map. "traffic": lists of emitter id, event type id, events, items. "roles": lists of role id, '
            "lag, lag in seconds, parked; without roles that lacked nothing.",
        ),
        sa.PrimaryKeyConstraint("step", "began_at", name="pk_sample"),
        sa.CheckConstraint("step > 0", name=op.f("ck_sample_step")),
        comment="What the monitor saw. Samples are thinned, so that the table never grows beyond some thousand rows.",
    )


def downgrade() -> None:
    op.drop_table("sample")
