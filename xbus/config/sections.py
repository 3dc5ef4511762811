"""Every option of the configuration: its section, its default, its unit, and the check of its value.

Each section is a frozen dataclass below, each option one of its fields, so that ``config.ini.sample`` can be checked
against them.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from xbus.config import values

T = TypeVar("T")


def option(default: T, check: Callable[[str], T], name: str = "", *, secret: bool = False) -> T:
    """Declare a field that the configuration file may set.

    Args:
        default: its value where the file is silent.
        check: makes the value from the file's text; raises ValueError with the rest of the sentence "<value> ...".
        name: its name in the file; by default that of the field.
        secret: whether the value may hold a password, and so is never shown.
    """
    return field(default=default, repr=not secret, metadata={"check": check, "name": name})


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The database of the journal."""

    url: str = option("sqlite:///xbus.db", values.database, name="sqlalchemy.dburi", secret=True)


@dataclass(frozen=True, slots=True)
class ZmqSettings:
    """The addresses of the broker."""

    frontsocket: str = option("tcp://127.0.0.1:1984", values.served_socket)
    backsocket: str = option("tcp://127.0.0.1:4891", values.served_socket)
    b2fsocket: str = option("inproc://#f2b", values.socket)
    encrypted_front: str = option("", values.encrypted_socket, name="frontsocket.curve")
    encrypted_back: str = option("", values.encrypted_socket, name="backsocket.curve")


@dataclass(frozen=True, slots=True)
class CurveSettings:
    """The encryption of the wire."""

    key_file: Path = option(Path("xbus.key"), values.needed_file)
    allow_plaintext: bool = option(False, values.switch)


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The level, the form and the destination of the log."""

    configfile: Path | None = option(None, values.file)
    format: str = option("text", values.log_format)
    level: str = option("INFO", values.level)


@dataclass(frozen=True, slots=True)
class SupervisionSettings:
    """Watching the recipients; ``interval``, ``timeout`` and ``heartbeat`` in seconds."""

    enabled: bool = option(False, values.switch)
    interval: float = option(5.0, values.seconds, name="node.polling.interval")
    timeout: float = option(1.0, values.seconds, name="node.polling.timeout")
    misses: int = option(2, values.count, name="node.misses.threshold")
    heartbeat: float = option(2.0, values.seconds_or_never)


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """The limits of emitters."""

    session_seconds: float = option(3600.0, values.seconds)
    session_hours: float = option(math.inf, values.hours_or_never)
    max_item_bytes: int = option(16 * 1024**2, values.count)
    max_batch_bytes: int = option(16 * 1024**2, values.count)
    max_envelope_items: int = option(100_000_000, values.count)
    max_envelope_bytes: int = option(16 * 1024**3, values.count)
    max_envelope_events: int = option(10_000, values.count)
    immediate_reply_timeout: float = option(30.0, values.seconds)
    open_envelope_timeout: float = option(86400.0, values.seconds)
    autodrop_envelopes: int = option(0, values.limit)


@dataclass(frozen=True, slots=True)
class BackSettings:
    """The time-outs and retries of recipients, in seconds, and the bytes in flight to one."""

    start_event_timeout: float = option(30.0, values.seconds)
    send_item_timeout: float = option(60.0, values.seconds)
    end_event_timeout: float = option(300.0, values.seconds)
    end_envelope_timeout: float = option(300.0, values.seconds)
    stop_envelope_timeout: float = option(30.0, values.seconds)
    reply_hold_timeout: float = option(60.0, values.seconds)
    register_timeout: float = option(5.0, values.seconds)
    worker_grace: float = option(5.0, values.seconds)
    behind_after: float = option(10.0, values.seconds)
    attempts: int = option(5, values.count)
    first_delay: float = option(1.0, values.seconds)
    longest_delay: float = option(300.0, values.seconds)
    jitter: float = option(0.2, values.part)
    trouble_after: int = option(5, values.count)
    probe_interval: float = option(30.0, values.seconds)
    bulk_lease: float = option(30.0, values.seconds)
    session_seconds: float = option(3600.0, values.seconds)
    window_bytes: int = option(8 * 1024**2, values.count)
    recipient_hosts: tuple[str, ...] = option((), values.hosts)


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The sizes of writes and of the journal, in bytes, and the time to keep envelopes."""

    max_pending_bytes: int = option(64 * 1024**2, values.count)
    max_segment_bytes: int = option(1024**2, values.count)
    answer_timeout: float = option(15.0, values.seconds)
    max_bytes: int = option(0, values.limit)
    keep_settled_days: float = option(30.0, values.days)
    owed_days: float = option(30.0, values.days)
    archive: str = option("", values.place)
    objects: str = option("", values.place)
    objects_shared: bool = option(False, values.switch)
    large_bytes: int = option(1024**2, values.large)


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """The limits of health: ``interval`` in seconds, the others in minutes, infinite for never."""

    interval: float = option(30.0, values.seconds)
    absent_minutes: float = option(15.0, values.minutes_from_0_or_never)
    parked_minutes: float = option(0.0, values.minutes_from_0_or_never)
    open_minutes: float = option(60.0, values.minutes_from_0_or_never)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """The address at which a process of the broker serves its metrics; empty for none."""

    listen: str = option("", values.http_listen)


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """The monitor in the browser: its address, its certificate, the length of a session, and who asks for clearing."""

    listen: str = option("127.0.0.1:8484", values.http_listen)
    certificate: Path | None = option(None, values.file)
    certificate_key: Path | None = option(None, values.file)
    session_hours: float = option(12.0, values.hours_or_never)
    idle_minutes: float = option(60.0, values.minutes_or_never)
    clearing_login: str = option("", str)
    clearing_password_file: Path | None = option(None, values.file)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The gateway for HTTP: its address, its certificate, where the broker is, bounds of requests, and callbacks."""

    listen: str = option("127.0.0.1:8085", values.http_listen)
    certificate: Path | None = option(None, values.file)
    certificate_key: Path | None = option(None, values.file)
    front: str = option("", str)
    back: str = option("", str)
    trusted_proxies: tuple[str, ...] = option((), values.networks)
    metrics_from: tuple[str, ...] = option((), values.networks)
    max_connections: int = option(1000, values.count)
    max_body_bytes: int = option(1024**3, values.count)
    max_document_bytes: int = option(16 * 1024**2, values.count)
    slow_seconds: float = option(30.0, values.seconds)
    insist_seconds: float = option(10.0, values.seconds)
    callbacks: bool = option(False, values.switch)
    callback_token: str = option("", str, secret=True)
    callback_hosts: tuple[str, ...] = option((), values.networks)
    callback_verify: bool = option(True, values.switch)
    topic_data_bytes: int = option(64, values.count)
    scaling_backlog: int = option(1000, values.count)
    statsd: str = option("", values.server_address)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The ways on which a problem reaches a person; empty for none. A webhook's address often is its password."""

    command: str = option("", values.command)
    url: str = option("", values.webhook, secret=True)


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """The address that takes spans by OTLP over HTTP; empty for none."""

    endpoint: str = option("", values.webhook, secret=True)


@dataclass(frozen=True, slots=True)
class SentrySettings:
    """The address of a project of Sentry, with its key; empty for none."""

    dsn: str = option("", values.webhook, secret=True)


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """The process itself; ``stop_timeout`` in seconds.

    Args:
        one_core: whether its two busy threads keep to one core while envelopes are small.
    """

    stop_timeout: float = option(10.0, values.seconds)
    one_core: bool = option(True, values.switch)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A broker beside others of the same journal; ``lease`` in seconds.

    Args:
        standby: whether it waits until no other one leads.
        lease: for how long it leads without having renewed its lease.
        name: its own; empty for its host and the port of its front.
    """

    standby: bool = option(False, values.switch)
    lease: float = option(3.0, values.seconds)
    name: str = option("", str.strip)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; each field is a section of the file.

    ``notes`` names the content of the file that has no effect, for the log. ``file`` is the file itself, for programs
    that this one starts; None if there is none. They inherit the environment.
    """

    database: DatabaseSettings = DatabaseSettings()
    zmq: ZmqSettings = ZmqSettings()
    curve: CurveSettings = CurveSettings()
    logging: LoggingSettings = LoggingSettings()
    supervision: SupervisionSettings = SupervisionSettings()
    front: FrontSettings = FrontSettings()
    back: BackSettings = BackSettings()
    journal: JournalSettings = JournalSettings()
    health: HealthLimits = HealthLimits()
    metrics: MetricsSettings = MetricsSettings()
    monitor: MonitorSettings = MonitorSettings()
    http: HttpSettings = HttpSettings()
    alerts: AlertSettings = AlertSettings()
    tracing: TracingSettings = TracingSettings()
    sentry: SentrySettings = SentrySettings()
    daemon: DaemonSettings = DaemonSettings()
    broker: BrokerSettings = BrokerSettings()
    notes: tuple[str, ...] = ()
    file: Path | None = None


SECTIONS: dict[str, type] = {f.name: f.type for f in fields(Config) if f.name != "notes" and isinstance(f.type, type)}
"""The sections of the file by name."""

UNUSED = {"supervision": {"backsocket"}}
"""Options of xbus.broker 0.2.0 that files still have and nothing needs, by section."""

UNUSED_SECTIONS = {"redis"}
"""Sections of xbus.broker 0.2.0 that files still have and nothing needs."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option by its place.

    Args:
        section: the name of its section.
        name: its name in the file.
        field: the name of the field of the section's dataclass.
        check: makes the value from text, see :mod:`xbus.config.values`.
        is_secret: whether the value may hold a password.
    """

    section: str
    name: str
    field: str
    check: Callable[[str], object]
    is_secret: bool

    @property
    def variable(self) -> str:
        """The environment variable that sets it, such as ``XBUS_DATABASE__SQLALCHEMY_DBURI``."""
        return f"XBUS_{self.section}__{self.name}".replace(".", "_").upper()

    def __str__(self) -> str:
        return f"[{self.section}] {self.name}"


def _options() -> Iterator[Option]:
    """Iterate over every option in the order of the sections."""
    for section, kind in SECTIONS.items():
        for described in fields(kind):
            check = described.metadata["check"]
            yield Option(section, option_name(described), described.name, check, is_secret=not described.repr)


def option_name(described: "Field[Any]") -> str:
    """Give the name of a section's field in the file."""
    name: str = described.metadata["name"] or described.name
    return name


OPTIONS: tuple[Option, ...] = tuple(_options())
