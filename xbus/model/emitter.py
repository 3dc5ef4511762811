"""Tables of emitters and of their profiles, which belong to the configuration."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, String, Table, Text

from xbus.model.base import Counter, Timestamp, metadata, one_of, optional, required

emitter_profile = Table(
    "emitter_profile",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    required(
        "new_types",
        String(255),
        "The beginning of the names, and a star, of the event types that its emitters may make by sending the "
        "first event of them; empty for none.",
        otherwise="''",
    ),
    optional(
        "clients_id",
        BigInteger,
        "The profile of those emitters for which its own may make API tokens; null if they may not.",
    ),
    optional(
        "keep_keys",
        Float,
        "Seconds for which keys of its emitters' removed envelopes are kept, from their end; null for ever.",
    ),
    optional("removed_at", Timestamp, "When it was taken out of use; null while in use."),
    comment="A set of event types that its emitters may send.",
)

emitter = Table(
    "emitter",
    metadata,
    Column("id", Counter, primary_key=True),
    required("login", String(255), unique=True),
    optional("password_hash", String(255), "Argon2; null until a password is set: nobody can log in."),
    required("profile_id", ForeignKey("emitter_profile.id")),
    one_of(
        "kind",
        ("program", "node", "bot"),
        "program: one that logs in; node, bot: the bus itself writes for a node that emits, or for a bot, and "
        "nobody can log in.",
        server_default="program",
    ),
    required(
        "public_keys",
        Text,
        "The keys by which it may log in over encrypted connections, in Z85 with blanks between them.",
        otherwise="''",
    ),
    optional("removed_at", Timestamp, "When it was taken out of use; null while in use."),
    comment="A program that sends envelopes, or a part of the bus that writes them.",
)
