"""Immediate replies, envelopes that repeat others, what is known of recipients and failures, people and descriptors."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _repeats()
    _replies()
    _recipients_and_failures()
    _people()


def _repeats() -> None:
    op.add_column(
        "envelope",
        sa.Column("origin_id", sa.Uuid(), comment="The envelope that this one repeats; null for what an emitter sent."),
    )
    op.add_column(
        "event",
        sa.Column(
            "origin_id",
            sa.Uuid(),
            comment="The event whose segments hold its items, where its envelope repeats another; null where they are its own.",
        ),
    )
    op.create_index(
        "ix_event_origin_id",
        "event",
        ["origin_id"],
        sqlite_where=sa.text("origin_id IS NOT NULL"),
        postgresql_where=sa.text("origin_id IS NOT NULL"),
    )
    op.create_table(
        "envelope_role",
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("role_id", IDENTIFIER, nullable=False),
        sa.PrimaryKeyConstraint("envelope_id", "role_id", name="pk_envelope_role"),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_envelope_role_envelope_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_envelope_role_role_id"),
        comment="An envelope that is in here is owed to these roles only; any other to all that its graphs lead to.",
    )


def _replies() -> None:
    op.create_table(
        "reply",
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False, comment="xbus.states.ReplyState."),
        sa.Column("until", MOMENT, nullable=False, comment="When nobody waits for it any more."),
        sa.Column("role_id", IDENTIFIER, comment="Who gave it; null where nobody did."),
        sa.Column("data", sa.LargeBinary(), comment="The reply in msgpack; null where there is none."),
        sa.Column("code", sa.String(64), comment="Why there is none; null where there is one."),
        sa.Column("cause", sa.Text(), comment="Why there is none, in a sentence; null where there is one."),
        sa.PrimaryKeyConstraint("event_id", name="pk_reply"),
        sa.CheckConstraint("state IN ('asked', 'held', 'given', 'failed')", name=op.f("ck_reply_state")),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_reply_event_id"),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_reply_envelope_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_reply_role_id"),
        comment="What the emitter of an event that wants an immediate reply was, or is to be, answered.",
    )
    op.create_index("ix_reply_state", "reply", ["state"])


def _recipients_and_failures() -> None:
    op.add_column(
        "registration",
        sa.Column(
            "metadata",
            sa.JSON(),
            comment="What it answered to get_metadata; null for one that was there when the broker went down and has "
            "not answered since.",
        ),
    )
    op.add_column(
        "registration",
        sa.Column(
            "features",
            sa.JSON(),
            comment="What it answered to has_clearing and has_immediate_reply, by the names clearing and immediate_reply.",
        ),
    )
    op.add_column(
        "failure",
        sa.Column("node", sa.String(255), comment="The node at which it did; null at the end of the envelope."),
    )
    op.add_column(
        "failure",
        sa.Column(
            "tracking",
            sa.String(16),
            nullable=False,
            server_default="unprocessed",
            comment="xbus.states.TrackingState: how far the person who repairs has come.",
        ),
    )
    op.create_index("ix_failure_tracking", "failure", ["tracking"])
    op.drop_index("ix_delivery_state", "delivery")
    op.create_index("ix_delivery_role_id", "delivery", ["role_id", "position"])
    op.create_index("ix_delivery_envelope_id", "delivery", ["envelope_id"])


def _people() -> None:
    op.create_table(
        "person",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("login", sa.String(255), nullable=False),
        sa.Column(
            "password_hash",
            sa.String(255),
            comment="As an emitter's; null until a password is set: nobody can log in.",
        ),
        sa.Column("display_name", sa.String(255)),
        sa.Column("email", sa.String(255)),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.PrimaryKeyConstraint("id", name="pk_person"),
        sa.UniqueConstraint("login", name="uq_person_login"),
        comment="Somebody who operates or administers the bus.",
    )
    op.create_table(
        "input_descriptor",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False, comment="Usually XML, see docs/emitting.md."),
        sa.Column("mimetype", sa.String(255)),
        sa.PrimaryKeyConstraint("id", name="pk_input_descriptor"),
        sa.UniqueConstraint("name", name="uq_input_descriptor_name"),
        comment="Describes files, so that their records can be emitted as items.",
    )
    op.create_table(
        "emission_profile",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("person_id", IDENTIFIER, comment="Who may use it; null for nobody."),
        sa.Column("descriptor_id", IDENTIFIER, comment="How the files that it emits are read."),
        sa.Column(
            "encoding", sa.String(64), nullable=False, comment="The character encoding of the files that it emits."
        ),
        sa.PrimaryKeyConstraint("id", name="pk_emission_profile"),
        sa.UniqueConstraint("name", name="uq_emission_profile_name"),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name="fk_emission_profile_person_id"),
        sa.ForeignKeyConstraint(["descriptor_id"], ["input_descriptor.id"], name="fk_emission_profile_descriptor_id"),
        comment="A way in which a person emits files.",
    )
