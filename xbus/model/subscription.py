"""Tables of subscriptions: whom gateways call with the batches of a reader, and how that went.

``subscription`` is configuration. ``subscription_state`` changes while the bus runs.
"""

from sqlalchemy import Boolean, Column, ForeignKey, Integer, String, Table, Text, true

from xbus.model.base import Counter, Timestamp, metadata, one_of, optional, required

subscription = Table(
    "subscription",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    required("service_id", ForeignKey("service.id"), "The reader that it stands on.", unique=True),
    required("url", Text, "The address that gateways call."),
    one_of(
        "format", ("json", "cloudevents", "routemaster"), "The format of the bodies of calls.", server_default="json"
    ),
    required(
        "secret", Text, "Signs the calls, and so it is kept as it is; empty for none. Nothing shows it.", otherwise="''"
    ),
    required(
        "verify",
        Boolean(create_constraint=False),
        "Whether the certificate of the subscriber is checked.",
        server_default=true(),
    ),
    optional("removed_at", Timestamp, "When it was taken out of use; null while in use."),
    comment="A reader with a URL: gateways call it back with batches.",
)

subscription_state = Table(
    "subscription_state",
    metadata,
    Column("service_id", ForeignKey("service.id"), primary_key=True, autoincrement=False),
    required("failures", Integer, "Calls that failed one after another.", otherwise="0"),
    optional("failing_since", Timestamp, "When the first of these failed; null while it is well."),
    optional("failed_at", Timestamp, "When the last of these failed; null without any."),
    optional("retry_at", Timestamp, "Until when nobody calls; null while it is well."),
    optional("code", String(64), "The code of the last failure."),
    optional("error", Text, "The last failure in words."),
    optional("ended_at", Timestamp, "When the subscriber said that it wants no more; null while it does."),
    comment="How the calls of a subscription went.",
)
