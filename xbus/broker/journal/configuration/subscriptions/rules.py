"""The rules that subscriptions must keep before they are accepted; pure."""

import base64
import binascii
from collections.abc import Iterator
from urllib.parse import urlsplit

from xbus.broker.journal.configuration.entries import BusSpec, ConfigurationProblem, Section, SubscriptionSpec

MOST_ITEMS = 10_000
MOST_MILLISECONDS = 3_600_000
"""The most of a batch, and the longest that it waits for more, for every way in. Clients of Routemaster know them."""

LONGEST_URL = 2048

LONGEST_WORD = 1024
"""The characters of a secret of Routemaster. All secrets are in memory, and go to gateways with each of their looks."""

SECRET_PREFIX = "whsec_"  # noqa: S105  A prefix, which each secret of Standard Webhooks has.
LEAST_SECRET_BYTES = 24
MOST_SECRET_BYTES = 64
"""The bytes of a secret that https://github.com/standard-webhooks/standard-webhooks, "Signature scheme", wants."""


def find_subscription_problems(ever: BusSpec, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Iterate over the faults of the subscriptions of ``bus``.

    Args:
        ever: all entries that there are and were.
        bus: the wished entries.
    """
    own = {each.reader.name for each in ever.with_all(bus).subscriptions.values()}
    for section in (Section.READER, Section.SERVICE):
        for name in own & bus.section(section).keys():
            sentence = f'"{name}" is the name of the reader that the bus has for a subscription: take another name'
            yield ConfigurationProblem((section, name, "name"), sentence)
    for each in bus.subscriptions.values():
        place = (Section.SUBSCRIPTION, each.name)
        for key, sentence in _problems(each, ever.subscriptions.get(each.name)):
            yield ConfigurationProblem((*place, key), sentence)
        if each.reader.name in ever.readers or each.reader.name in ever.services:
            sentence = f'a reader or a service is called "{each.reader.name}", as the subscription\'s own has to be'
            yield ConfigurationProblem((*place, "name"), sentence)


def _problems(each: SubscriptionSpec, present: SubscriptionSpec | None) -> Iterator[tuple[str, str]]:
    # Of a client of Routemaster all topics may be removed, and it is a subscriber all the same.
    if not each.event_types and each.format != "routemaster":
        yield "event_types", "name at least one event type"
    if not is_callback_url(each.url):
        wish = f"an address of http or https without login and password, of at most {LONGEST_URL} characters"
        yield "url", f"url must be {wish}"
    if not 1 <= each.max <= MOST_ITEMS:
        yield "max", f"max must be from 1 to {MOST_ITEMS:,}"
    if not 0 <= each.timeout <= MOST_MILLISECONDS:
        yield "timeout", f"timeout must be from 0 to {MOST_MILLISECONDS:,} milliseconds"
    if each.max_lag is None and each.when_behind != "alarm":
        yield "when_behind", f'when_behind = "{each.when_behind}" needs max_lag, which says what behind is'
    first, longest = each.retry.first_delay, each.retry.longest_delay
    if first is not None and longest is not None and first > longest:
        yield "first_delay", f"first_delay ({first:g} s) is longer than longest_delay ({longest:g} s)"
    if each.secret and not is_secret(each.secret, each.format):
        key = f"{SECRET_PREFIX} and {LEAST_SECRET_BYTES} to {MOST_SECRET_BYTES} bytes in Base64"
        word = f"a word without colons of at most {LONGEST_WORD:,} characters"
        yield "secret", f"the secret must be {word if each.format == 'routemaster' else key}"
    if present is not None and present.ranges != each.ranges:
        sentence = (
            f"it began with {present.ranges} ranges, which ranges tells for good; "
            "xbus reader split and xbus reader merge change those that it has now"
        )
        yield "ranges", sentence


def is_callback_url(url: str) -> bool:
    """Check whether a URL can be called; whether its host may be is known when it is called."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_whole and "@" not in parts.netloc and len(url) <= LONGEST_URL and _is_word(url)


def is_secret(secret: str, format_: str) -> bool:
    """Check a secret: a key of Standard Webhooks, or for Routemaster the word by which it logs in, too."""
    if format_ == "routemaster":
        return len(secret) <= LONGEST_WORD and ":" not in secret and _is_word(secret)
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return False
    return secret.startswith(SECRET_PREFIX) and LEAST_SECRET_BYTES <= len(key) <= MOST_SECRET_BYTES


def _is_word(text: str) -> bool:
    """Check for visible ASCII alone: a line break would forge headers of a call, an escape sequence a terminal."""
    return text.isascii() and text.isprintable() and " " not in text
