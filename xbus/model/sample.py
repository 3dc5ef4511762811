"""The samples that the monitor keeps: how much came, and how far the roles lagged, over the last weeks."""

from sqlalchemy import JSON, BigInteger, CheckConstraint, Column, Float, Integer, Table

from xbus.model.base import Timestamp, metadata, required

sample = Table(
    "sample",
    metadata,
    Column(
        "step",
        Integer,
        CheckConstraint("step > 0", name="step"),
        primary_key=True,
        autoincrement=False,
        comment="Seconds: 10 for a sample as it was taken; more for what several of them came to.",
    ),
    Column(
        "began_at",
        Timestamp,
        primary_key=True,
        comment="The end of the sample before it. So of two monitors that go on from the same sample one is too late.",
    ),
    required("ended_at", Timestamp),
    required("observed", Float, "Seconds of it in which a monitor ran."),
    required("position", BigInteger, "The end of the log at its end: the next one counts on."),
    required("envelopes", BigInteger, "How many envelopes were received in it."),
    required("events", BigInteger, "How many events these have; an estimate where many came."),
    required("items", BigInteger, "How many items these have; an estimate where many came."),
    required("lag", BigInteger, "The most envelopes that all roles together lacked in it."),
    required("lag_seconds", Float, "The greatest age of an envelope in it that a role lacked."),
    required("parked", BigInteger, "The most envelopes and items that were parked in it."),
    required(
        "parts",
        JSON(none_as_null=True),
        'A map. "traffic": lists of emitter id, event type id, events, items. "roles": lists of role id, lag, '
        'lag in seconds, parked; without roles that lacked nothing. "delivered": lists of role id, envelopes, items.',
    ),
    comment="What the monitor saw. Samples are thinned, so that the table never grows beyond some thousand rows.",
)
