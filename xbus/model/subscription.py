"""Tables of subscriptions: whom gateways call with the batches of a reader, and how that went.

``subscription`` is configuration. ``subscription_state`` changes while the bus runs.
"""

from sqlalchemy import Boolean, Column, ForeignKey, Integer, String, Table, Text, text, true

from xbus.model.base import Counter, Timestamp, metadata, one_of, required

subscription = Table(
    "subscription",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    required("service_id", ForeignKey("service.id"), unique=True, comment="The reader that it stands on."),
    required("url", Text, comment="The address that gateways call."),
    one_of(
        "format",
        ("json", "cloudevents", "routemaster"),
        server_default="json",
        comment="The format of the bodies of calls.",
    ),
    required(
        "secret",
        Text,
        server_default=text("''"),
        comment="Signs the calls, and so it is kept as it is; empty for none. Nothing shows it.",
    ),
    required(
        "verify",
        Boolean(create_constraint=False),
        server_default=true(),
        comment="Whether the certificate of the subscriber is checked.",
    ),
    Column("removed_at", Timestamp, comment="When it was taken out of use; null while in use."),
    comment="A reader with a URL: gateways call it back with batches.",
)

subscription_state = Table(
    "subscription_state",
    metadata,
    Column("service_id", ForeignKey("service.id"), primary_key=True, autoincrement=False),
    required("failures", Integer, server_default=text("0"), comment="Calls that failed one after another."),
    Column("failing_since", Timestamp, comment="When the first of these failed; null while it is well."),
    Column("failed_at", Timestamp, comment="When the last of these failed; null without any."),
    Column("retry_at", Timestamp, comment="Until when nobody calls; null while it is well."),
    Column("code", String(64), comment="The code of the last failure."),
    Column("error", Text, comment="The last failure in words."),
    Column("ended_at", Timestamp, comment="When the subscriber said that it wants no more; null while it does."),
    comment="How the calls of a subscription went.",
)
