"""Tables of sessions, API tokens and registrations, kept so that a restart of the broker disturbs nobody."""

from sqlalchemy import JSON, CheckConstraint, Column, ForeignKey, LargeBinary, String, Table, Text

from xbus.model.base import Counter, Timestamp, metadata, optional, required

session = Table(
    "session",
    metadata,
    Column(
        "token_hash", LargeBinary(32), primary_key=True, comment="SHA-256 of the token; the token itself is not kept."
    ),
    optional("emitter_id", ForeignKey("emitter.id"), "Whose session it is, at the front; else null."),
    optional("role_id", ForeignKey("role.id"), "Whose session it is, at the back; else null."),
    required("expires_at", Timestamp, "Moves on with use."),
    optional("started_at", Timestamp, "When it began; null for one of before this was kept."),
    optional(
        "ticket_hash",
        LargeBinary(32),
        "SHA-256 of the ticket of the bot's run for which it began, and with which it ends; else null.",
        index=True,
    ),
    CheckConstraint("(emitter_id IS NULL) <> (role_id IS NULL)", name="one_owner"),
    comment="A login that has not ended.",
)

api_token = Table(
    "api_token",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), "What operators call it.", unique=True),
    required("token_hash", LargeBinary(32), "SHA-256 of the token; the token itself is not kept.", unique=True),
    optional("emitter_id", ForeignKey("emitter.id"), "The emitter whose it is at the front; null for none."),
    optional("role_id", ForeignKey("role.id"), "The role whose it is at the back; null for none."),
    required("created_at", Timestamp),
    optional("used_at", Timestamp, "When it was last used, to ten seconds; null for never."),
    CheckConstraint("emitter_id IS NOT NULL OR role_id IS NOT NULL", name="owner"),
    comment="A session without a login and without an end: an operator makes it, and revokes it.",
)

registration = Table(
    "registration",
    metadata,
    Column("role_id", ForeignKey("role.id"), primary_key=True),
    Column("token_hash", LargeBinary(32), primary_key=True, comment="The session it was made with."),
    required("uri", Text, "Where the recipient listens; the broker connects there."),
    required("registered_at", Timestamp),
    optional(
        "place",
        Text,
        "Where the journal was when the registration was made; null where that is not known. The broker calls "
        "only recipients that registered where the journal is now.",
    ),
    optional(
        "metadata",
        JSON(none_as_null=True),
        "What it answered to get_metadata; null for one that was there when the broker went down and has not "
        "answered since.",
    ),
    optional(
        "features",
        JSON(none_as_null=True),
        "What it answered to has_clearing and has_immediate_reply, by the names clearing and immediate_reply.",
    ),
    comment="The recipients that serve a role now, or stand by; of more than it has places for the newest win.",
)
