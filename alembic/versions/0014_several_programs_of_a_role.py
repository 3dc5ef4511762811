"""Several programs may serve a role side by side, and others stand by."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

INSTANCES = "So many programs may serve it side by side."
STANDBY = "Whether further programs wait, registered, until one that serves it is lost."
PROGRAMS = (
    "Each program that is registered: a list of maps with uri, state, since, seen_at and work; null where the role has "
    "place for one alone."
)

ROLE = "What a program logs in as to provide a service; several may do so side by side."
REGISTERED = "The recipients that serve a role now, or stand by; of more than it has places for the newest win."


def upgrade() -> None:
    op.add_column(
        "role", sa.Column("instances", sa.Integer(), nullable=False, server_default=sa.text("1"), comment=INSTANCES)
    )
    op.add_column(
        "role",
        sa.Column(
            "standby",
            sa.Boolean(create_constraint=False),
            nullable=False,
            server_default=sa.false(),
            comment=STANDBY,
        ),
    )
    op.add_column("presence", sa.Column("instances", sa.JSON(none_as_null=True), comment=PROGRAMS))
    # A row for each program.
    if op.get_context().dialect.name == "postgresql":
        op.drop_constraint("pk_registration", "registration")
        op.create_primary_key("pk_registration", "registration", ["role_id", "token_hash"])
        op.create_table_comment("registration", REGISTERED)
        op.create_table_comment("role", ROLE)
    else:
        _make_anew()


def _make_anew() -> None:
    """SQLite changes no primary key of a table that is there; nothing refers to this one, so it can be made anew."""
    op.rename_table("registration", "old_registration")
    old = sa.Table("old_registration", sa.MetaData(), autoload_with=op.get_bind())
    op.create_table(
        "registration",
        *(sa.Column(column.name, column.type, nullable=column.nullable) for column in old.columns),
        sa.PrimaryKeyConstraint("role_id", "token_hash", name="pk_registration"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_registration_role_id"),
    )
    columns = ", ".join(column.name for column in old.columns)
    op.execute(f"INSERT INTO registration ({columns}) SELECT {columns} FROM old_registration")
    op.drop_table("old_registration")
