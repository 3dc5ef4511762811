"""The configuration of the broker: every option, its default, its check, and how it is read from file and environment.

It imports nothing of the bus but its errors, and everyone may import it.
"""

from xbus.config.reading import FILE_VARIABLE, ConfigReading, is_in, load, load_or_default, read
from xbus.config.sample import sample
from xbus.config.sections import (
    OPTIONS,
    SECTIONS,
    UNUSED,
    AlertSettings,
    BackSettings,
    Config,
    DaemonSettings,
    DatabaseSettings,
    FrontSettings,
    HealthLimits,
    HttpSettings,
    JournalSettings,
    LoggingSettings,
    MonitorSettings,
    Option,
    SupervisionSettings,
    ZmqSettings,
    option_name,
)
from xbus.config.values import host_and_port, without_password, without_secrets, written

__all__ = [
    "FILE_VARIABLE",
    "OPTIONS",
    "SECTIONS",
    "UNUSED",
    "AlertSettings",
    "BackSettings",
    "Config",
    "ConfigReading",
    "DaemonSettings",
    "DatabaseSettings",
    "FrontSettings",
    "HealthLimits",
    "HttpSettings",
    "JournalSettings",
    "LoggingSettings",
    "MonitorSettings",
    "Option",
    "SupervisionSettings",
    "ZmqSettings",
    "host_and_port",
    "is_in",
    "load",
    "load_or_default",
    "option_name",
    "read",
    "sample",
    "without_password",
    "without_secrets",
    "written",
]
