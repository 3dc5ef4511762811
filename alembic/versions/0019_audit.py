"""The audit keeps who did what, in a chain of hashes, and sessions their begin.

Triggers refuse changes of the audit, and note edits of the configuration by SQL.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

CONTENT = ("id", "at", "who", "origin", "action", "object", "before", "after", "reason")
"""Columns that never change. The chain sets the others once."""

REFUSED = "rows of the audit are never changed or removed; see xbus audit cut"


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("at", MOMENT, nullable=False, comment="When it was done."),
        sa.Column(
            "who",
            sa.String(255),
            nullable=False,
            comment="A login, the operating-system user of a command, or the database user of an edit by SQL.",
        ),
        sa.Column(
            "origin",
            sa.String(255),
            nullable=False,
            comment="The address of the peer, or the host of the command; or empty.",
        ),
        sa.Column(
            "action",
            sa.String(64),
            nullable=False,
            comment="What was done, in a word: applied, password_set, dropped, ...",
        ),
        sa.Column("object", sa.Text(), nullable=False, comment="To what, by its kind and its name or id."),
        sa.Column("before", sa.Text(), nullable=False, comment="How it was, as far as that changed; never a secret."),
        sa.Column("after", sa.Text(), nullable=False, comment="How it is since then; never a secret."),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why, as the person said."),
        sa.Column(
            "number",
            sa.BigInteger(),
            comment="Its place in the chain, gapless from 1; null until the chain takes it, a moment later.",
        ),
        sa.Column(
            "hash",
            sa.LargeBinary(32),
            comment="SHA-256 over the hash before it and its own values; null as the number.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sa.UniqueConstraint("number", name="uq_audit_number"),
        comment="What people and programs did to the bus. Triggers refuse changes; only xbus audit cut removes rows.",
    )
    waiting = sa.text("number IS NULL")
    op.create_index("ix_audit_new", "audit", ["id"], sqlite_where=waiting, postgresql_where=waiting)
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), nullable=False, comment="Always 1."),
        sa.Column(
            "number",
            sa.BigInteger(),
            nullable=False,
            comment="The number of the newest row in the chain; 0 before the first.",
        ),
        sa.Column("hash", sa.LargeBinary(32), nullable=False, comment="Its hash; zeros before the first."),
        sa.Column(
            "cut_number",
            sa.BigInteger(),
            nullable=False,
            comment="All rows up to this number were cut off; 0 for none.",
        ),
        sa.Column(
            "cut_hash",
            sa.LargeBinary(32),
            nullable=False,
            comment="The hash from which the oldest kept row goes on.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
        sa.CheckConstraint("id = 1", name=op.f("ck_audit_head_one_row")),
        comment="One row: both ends of the audit's chain. Who makes the chain longer or shorter locks it.",
    )
    op.bulk_insert(head, [{"id": 1, "number": 0, "hash": bytes(32), "cut_number": 0, "cut_hash": bytes(32)}])
    op.add_column(
        "session", sa.Column("started_at", MOMENT, comment="When it began; null for one of before this was kept.")
    )
    if op.get_bind().dialect.name == "postgresql":
        _upgrade_postgresql()
    else:
        _upgrade_sqlite()


def _upgrade_sqlite() -> None:
    changed = " OR ".join(f'NEW."{name}" IS NOT OLD."{name}"' for name in CONTENT)
    refuse = f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
    op.execute(
        f"CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit WHEN OLD.number IS NOT NULL OR {changed} {refuse}"
    )
    op.execute(
        "CREATE TRIGGER audit_kept BEFORE DELETE ON audit "
        f"WHEN OLD.number IS NULL OR OLD.number > (SELECT cut_number FROM audit_head) {refuse}"
    )
    op.execute(
        "CREATE TRIGGER audit_edits AFTER UPDATE OF version ON configuration "
        "WHEN NEW.version <> OLD.version AND NOT NEW.changing BEGIN "
        'INSERT INTO audit ("at", who, origin, "action", object, "before", "after", reason) VALUES '
        "(strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', '', '', 'edited_by_sql', 'configuration', "
        "'version ' || OLD.version, 'version ' || NEW.version, ''); END"
    )


def _upgrade_postgresql() -> None:
    changed = " OR ".join(f'NEW."{name}" IS DISTINCT FROM OLD."{name}"' for name in CONTENT)
    op.execute(
        "CREATE FUNCTION xbus_audit_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
        f"IF TG_OP = 'UPDATE' THEN IF OLD.number IS NULL AND NOT ({changed}) THEN RETURN NEW; END IF; "
        "ELSIF TG_OP = 'DELETE' THEN "
        "IF OLD.number <= (SELECT cut_number FROM audit_head) THEN RETURN OLD; END IF; END IF; "
        f"RAISE EXCEPTION '{REFUSED}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION xbus_audit_kept()"
    )
    op.execute(
        "CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION xbus_audit_kept()"
    )
    # As its owner: who may edit the configuration need not be allowed to write the audit.
    op.execute(
        "CREATE FUNCTION xbus_audit_edits() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        "SET search_path FROM CURRENT AS $$ BEGIN "
        'INSERT INTO audit ("at", who, origin, "action", object, "before", "after", reason) VALUES '
        "(clock_timestamp(), session_user, coalesce(host(inet_client_addr()), ''), 'edited_by_sql', 'configuration', "
        "'version ' || OLD.version, 'version ' || NEW.version, ''); RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_edits AFTER UPDATE ON configuration FOR EACH ROW "
        "WHEN (NEW.version <> OLD.version AND NOT NEW.changing) EXECUTE FUNCTION xbus_audit_edits()"
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER audit_edits ON configuration")
        op.drop_table("audit")
        op.execute("DROP FUNCTION xbus_audit_edits()")
        op.execute("DROP FUNCTION xbus_audit_kept()")
    else:
        op.execute("DROP TRIGGER audit_edits")
        op.drop_table("audit")
    op.drop_table("audit_head")
    op.drop_column("session", "started_at")
