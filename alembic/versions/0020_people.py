"""People have rights, sessions, and tokens for their programs."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

RIGHTS = "manager, operator, uploader, clearer, viewer, with blanks between them; empty where nobody has given any."
CREATED = "When it was added; or when the database got this column."
LAST_SEEN = "When a session or token of it was last used, to a minute."
REMOVED = "When it was disabled; null while in use."
HASH = "SHA-256 of the token; the token itself is not kept."

NEW = ("rights", "created_at", "last_seen_at")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        _alter_person()
    else:
        _make_person_anew()
    op.create_table(
        "person_session",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("person_id", IDENTIFIER, nullable=False),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False, comment=HASH),
        sa.Column("origin", sa.String(255), nullable=False, comment="The address from which the person logged in."),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("used_at", MOMENT, nullable=False, comment="When it was last used, to a minute."),
        sa.Column("expires_at", MOMENT, nullable=False, comment="When it ends, whatever its use."),
        sa.PrimaryKeyConstraint("id", name="pk_person_session"),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name="fk_person_session_person_id"),
        sa.UniqueConstraint("token_hash", name="uq_person_session_token_hash"),
        comment="A person's login that has not ended.",
        sqlite_autoincrement=True,
    )
    op.create_index("ix_person_session_person_id", "person_session", ["person_id"])
    op.create_table(
        "person_token",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("person_id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False, comment="What the person calls it."),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False, comment=HASH),
        sa.Column(
            "rights",
            sa.Text(),
            nullable=False,
            comment="As a person's. A token has those that its person has, too, and no other.",
        ),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("used_at", MOMENT, comment="When it was last used, to a minute; null for never."),
        sa.Column("expires_at", MOMENT, comment="When it ends; null for never."),
        sa.PrimaryKeyConstraint("id", name="pk_person_token"),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name="fk_person_token_person_id"),
        sa.UniqueConstraint("token_hash", name="uq_person_token_token_hash"),
        sa.UniqueConstraint("person_id", "name", name="uq_person_token_person_id_name"),
        comment="Lets a program act for a person.",
    )


def _alter_person() -> None:
    op.add_column("person", sa.Column("rights", sa.Text(), comment=RIGHTS))
    op.add_column("person", sa.Column("created_at", MOMENT, comment=CREATED))
    op.add_column("person", sa.Column("last_seen_at", MOMENT, comment=LAST_SEEN))
    op.execute("UPDATE person SET rights = '', created_at = now()")
    op.alter_column("person", "rights", nullable=False)
    op.alter_column("person", "created_at", nullable=False)
    op.alter_column("person", "removed_at", comment=REMOVED)


def _make_person_anew() -> None:
    """SQLite adds no column that must have a value, and the table that refers to this one follows its old name."""
    op.rename_table("person", "old_person")
    op.rename_table("emission_profile", "old_emission_profile")
    op.create_table(
        "person",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("login", sa.String(255), nullable=False),
        sa.Column("password_hash", sa.String(255)),
        sa.Column("display_name", sa.String(255)),
        sa.Column("email", sa.String(255)),
        sa.Column("rights", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("last_seen_at", MOMENT),
        sa.Column("removed_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_person"),
        sa.UniqueConstraint("login", name="uq_person_login"),
    )
    kept = "id, login, password_hash, display_name, email, removed_at"
    now = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'"
    op.execute(f"INSERT INTO person ({kept}, rights, created_at) SELECT {kept}, '', {now} FROM old_person")
    op.create_table(
        "emission_profile",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("person_id", IDENTIFIER),
        sa.Column("descriptor_id", IDENTIFIER),
        sa.Column("encoding", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_emission_profile"),
        sa.UniqueConstraint("name", name="uq_emission_profile_name"),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name="fk_emission_profile_person_id"),
        sa.ForeignKeyConstraint(["descriptor_id"], ["input_descriptor.id"], name="fk_emission_profile_descriptor_id"),
    )
    kept = "id, name, person_id, descriptor_id, encoding"
    op.execute(f"INSERT INTO emission_profile ({kept}) SELECT {kept} FROM old_emission_profile")
    op.drop_table("old_emission_profile")
    op.drop_table("old_person")


def downgrade() -> None:
    op.drop_table("person_token")
    op.drop_table("person_session")
    for column in NEW:
        op.drop_column("person", column)
