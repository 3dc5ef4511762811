"""Reports exceptions to Sentry; the only place that knows its library.

An exception goes there with its traceback, and with the fields of the line of the log that tells of it: action, ids and
the like. No values of variables go there, as they hold items and passwords.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import sentry_sdk
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.types import Event, Hint
from sentry_sdk.utils import BadDsn

from xbus.errors import ConfigurationError
from xbus.extras import DISTRIBUTION, installed_version

FLUSH_SECONDS = 2.0
"""Seconds for which an ending program tries to report the last exceptions."""


@contextmanager
def reporting(dsn: str, process: str) -> Iterator[None]:
    """Report each exception that is logged within the block.

    Args:
        dsn: the address of the project, with its key.
        process: the part of the broker that this process is.

    Raises:
        ConfigurationError: the address is none of Sentry's.
    """
    try:
        sentry_sdk.init(
            dsn,
            release=f"{DISTRIBUTION}@{installed_version()}",
            default_integrations=False,
            integrations=[LoggingIntegration(level=None, event_level=logging.ERROR)],
            include_local_variables=False,
            max_breadcrumbs=0,
            before_send=_only_exceptions,
        )
    except BadDsn as error:
        raise ConfigurationError(
            "[sentry] dsn is no address of Sentry", "copy it from the project's settings"
        ) from error
    sentry_sdk.get_global_scope().set_tag("xbus.process", process)
    try:
        yield
    finally:
        sentry_sdk.flush(FLUSH_SECONDS)
        sentry_sdk.init()


def _only_exceptions(event: Event, hint: Hint) -> Event | None:
    return event if hint.get("exc_info") else None
