"""The rules for topics and events, as Routemaster has them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from xbus.errors import Refused
from xbus.http.targets import https_parts
from xbus.rpc.items import item_bytes

TYPES = ("create", "update", "delete", "noop")
FIELDS = {"type", "url", "timestamp", "data"}
LONGEST_URL = 1024

LATEST = 253_402_300_800_000
"""The end of the year 9999, in milliseconds since 1970."""

_TOPIC = re.compile(r"[a-z_]{1,64}")


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """An event of a topic.

    Args:
        fields: as its publisher sent them, with its timestamp.
        at: the moment of its timestamp.
    """

    fields: Mapping[str, object]
    at: datetime


def check_topic(name: object) -> str:
    """Let the name of a topic pass.

    Raises:
        Refused: the name has another form (``bad_event``).
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise bad("a topic is called by 1 to 64 lower-case letters and underscores")
    return name


def read_event(topic: str, found: object, now: datetime, data_bytes: int) -> TopicEvent:
    """Check an event, and give it its timestamp where it has none.

    Args:
        topic: the name of its topic.
        found: the body of the request.
        now: the moment of the request.
        data_bytes: the most bytes of its data in msgpack.

    Raises:
        Refused: it is none (``bad_event``).
    """
    if not isinstance(found, dict):
        raise bad("the event is no map")
    # The published client for Go sends the topic in the event, too.
    if found.get("topic", topic) != topic:
        raise bad("the topic of the event is not that of the path")
    if extra := set(found) - {*FIELDS, "topic"}:
        raise bad(f"the event has the extra field {min(extra):.40}")
    if found.get("type") not in TYPES:
        raise bad(f"the type is not one of {', '.join(TYPES)}")
    url = found.get("url")
    if not isinstance(url, str) or https_parts(url) is None or len(url) > LONGEST_URL:
        raise bad(f"the url is no address of https without password, with up to {LONGEST_URL} characters")
    milliseconds = found.get("timestamp")
    if milliseconds is None:
        milliseconds = int(now.timestamp() * 1000)
    if type(milliseconds) is not int or not 0 <= milliseconds < LATEST:
        raise bad("the timestamp is no number of milliseconds since 1970")
    fields = {"type": found["type"], "url": url, "timestamp": milliseconds}
    if found.get("data") is not None:
        if len(item_bytes(found["data"])) > data_bytes:
            raise bad(f"the data takes more than {data_bytes} bytes of msgpack")
        fields["data"] = found["data"]
    return TopicEvent(fields, datetime.fromtimestamp(milliseconds / 1000, UTC))


def bad(cause: str) -> Refused:
    """Refuse what is no event, topic or subscription."""
    return Refused(cause, "correct it", code="bad_event")
