"""Tables of the people who operate the bus: their rights, their sessions, and the tokens of their programs."""

from sqlalchemy import Column, ForeignKey, LargeBinary, String, Table, Text, UniqueConstraint

from xbus.model.base import Counter, Timestamp, metadata, optional, required

person = Table(
    "person",
    metadata,
    Column("id", Counter, primary_key=True),
    required("login", String(255), unique=True),
    optional("password_hash", String(255), "As an emitter's; null until a password is set: nobody can log in."),
    Column("display_name", String(255)),
    Column("email", String(255)),
    required(
        "rights",
        Text,
        "manager, operator, uploader, clearer, viewer, with blanks between them; empty where nobody has given any.",
    ),
    required("created_at", Timestamp, "When it was added; or when the database got this column."),
    optional("last_seen_at", Timestamp, "When a session or token of it was last used, to a minute."),
    optional("removed_at", Timestamp, "When it was disabled; null while in use."),
    comment="Somebody who operates or administers the bus.",
)

person_session = Table(
    "person_session",
    metadata,
    Column("id", Counter, primary_key=True),
    required("person_id", ForeignKey("person.id"), index=True),
    required("token_hash", LargeBinary(32), "SHA-256 of the token; the token itself is not kept.", unique=True),
    required("origin", String(255), "The address from which the person logged in."),
    required("created_at", Timestamp),
    required("used_at", Timestamp, "When it was last used, to a minute."),
    required("expires_at", Timestamp, "When it ends, whatever its use."),
    comment="A person's login that has not ended.",
    # The id of a session that ended never means another one.
    sqlite_autoincrement=True,
)

person_token = Table(
    "person_token",
    metadata,
    Column("id", Counter, primary_key=True),
    required("person_id", ForeignKey("person.id")),
    required("name", String(255), "What the person calls it."),
    required("token_hash", LargeBinary(32), "SHA-256 of the token; the token itself is not kept.", unique=True),
    required("rights", Text, "As a person's. A token has those that its person has, too, and no other."),
    required("created_at", Timestamp),
    optional("used_at", Timestamp, "When it was last used, to a minute; null for never."),
    optional("expires_at", Timestamp, "When it ends; null for never."),
    UniqueConstraint("person_id", "name"),
    comment="Lets a program act for a person.",
)
