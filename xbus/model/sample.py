"""The samples that the monitor keeps: how much came, and how far the roles lagged, over the last weeks."""

from sqlalchemy import JSON, BigInteger, CheckConstraint, Column, Float, Integer, Table

from xbus.model.base import Timestamp, metadata

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
    Column("ended_at", Timestamp, nullable=False),
    Column("observed", Float, nullable=False, comment="Seconds of it in which a monitor ran."),
    Column("position", BigInteger, nullable=False, comment="The end of the log at its end: the next one counts on."),
    Column("envelopes", BigInteger, nullable=False, comment="How many envelopes were received in it."),
    Column("events", BigInteger, nullable=False, comment="How many events these have; an estimate where many came."),
    Column("items", BigInteger, nullable=False, comment="How many items these have; an estimate where many came."),
    Column("lag", BigInteger, nullable=False, comment="The most envelopes that all roles together lacked in it."),
    Column("lag_seconds", Float, nullable=False, comment="The greatest age of an envelope in it that a role lacked."),
    Column("parked", BigInteger, nullable=False, comment="The most envelopes and items that were parked in it."),
    Column(
        "parts",
        JSON(none_as_null=True),
        nullable=False,
        comment='A map. "traffic": lists of emitter id, event type id, events, items. "roles": lists of role id, lag, '
        'lag in seconds, parked; without roles that lacked nothing. "delivered": lists of role id, envelopes, items.',
    ),
    comment="What the monitor saw. Samples are thinned, so that the table never grows beyond some thousand rows.",
)
