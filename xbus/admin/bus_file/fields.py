"""The tables and keys that a bus file may hold."""

from collections.abc import Mapping
from dataclasses import replace

from xbus.admin.bus_file.table_keys import (
    BAD_ITEMS,
    COMPRESS,
    COUNT,
    FAILURES,
    FOR_EVER,
    KIND,
    LAG,
    MINUTES,
    MOST_INSTANCES,
    MOST_POSITIONS,
    NAME,
    NAMES,
    OF_SERVICE,
    PART,
    SECONDS,
    SPAN,
    START,
    SWITCH,
    TABLES,
    TEXT,
    YEAR,
    Fields,
    FieldShape,
    TableKey,
    choice,
    is_instances,
    is_list_of_keys,
    is_list_of_names,
    is_list_of_paths,
    is_list_of_texts,
    is_new_types,
    is_number,
    is_plain,
    is_span,
)
from xbus.broker.journal.configuration import MOST_ITEMS, MOST_MILLISECONDS, Section
from xbus.broker.journal.configuration.entries import (
    BOT_ATTEMPTS,
    BOT_BATCH_BYTES,
    BOT_BATCH_ITEMS,
    BOT_SECONDS,
    MAX_ISOLATED,
    ReaderSpec,
    SubscriptionSpec,
)
from xbus.broker.journal.configuration.names import is_name
from xbus.broker.journal.writes import LIMIT_NAMES
from xbus.rpc.curve import KEY_LENGTH
from xbus.slots import Missed

SECRET: Fields = {
    "secret": TableKey(
        is_list_of_paths,
        'a list of paths of keys, such as ["card.number", "iban"]',
        default=(),
        read=lambda paths: tuple(sorted(set(paths))),
        shape=FieldShape.LINES,
        means="Fields of items that are shown only to who asks for secrets, such as card.number.",
    )
}

KEEPING: Fields = {
    "keep": replace(
        SPAN,
        is_right=lambda value: value == FOR_EVER or is_span(value),
        wish=f'{SPAN.wish}, or "{FOR_EVER}"',
        means="How long settled events stay, such as 90d, or forever.",
    ),
    "keep_bytes": TableKey(
        lambda value: type(value) is int and 1 <= value <= MOST_POSITIONS,
        "a whole number of bytes from 1 on",
        shape=FieldShape.NUMBER,
        means="Bytes of the newest events that stay.",
    ),
    "keep_last_per_key": replace(COUNT, means="How many of the newest events of each partition key stay."),
    "archive_after": replace(SPAN, means="The age at which settled events move into the archive, such as 30d."),
    "compress": COMPRESS,
}

EMITS = TableKey(
    lambda value: is_name(value) or is_list_of_names(value),
    "the name of an event type, or a list of such names",
    default=(),
    read=lambda value: (value,) if isinstance(value, str) else tuple(sorted(set(value))),
    shape=FieldShape.NAMES,
    means="The event types as which the bus emits what comes to the node.",
    refers_to=Section.EVENT_TYPE,
)

NODE: Fields = {
    "name": NAME,
    "service": replace(OF_SERVICE, required=False, default=""),
    "to": NAMES,
    "emits": EMITS,
}

ISOLATION: Fields = {
    "bad_items": BAD_ITEMS,
    "max_isolated": replace(
        COUNT,
        default=MAX_ISOLATED,
        means="The most items of an event that are parked alone; with more, the envelope is.",
    ),
}

RETRY: Fields = {
    "attempts": replace(COUNT, means="How often an envelope, or a batch, is tried before it is parked."),
    "first_delay": replace(SECONDS, means="Seconds before the second attempt; doubled each time."),
    "longest_delay": replace(SECONDS, means="The most seconds between attempts."),
    "jitter": replace(PART, means="The part by which a delay varies at random."),
}

FAILING: Fields = {"failures": FAILURES, **RETRY}

ORDER: Fields = {"ordered": replace(SWITCH, means="One envelope at a time, those of an ordering key in their order.")}

INSTANCES: Fields = {
    "instances": TableKey(
        is_instances,
        f"a whole number from 1 to {MOST_INSTANCES:,}",
        default=1,
        shape=FieldShape.NUMBER,
        means="So many programs may serve it side by side.",
    ),
    "standby": replace(SWITCH, means="Further programs wait until one of those is lost."),
}

KEYS: Fields = {
    "keys": TableKey(
        is_list_of_keys,
        f"a list of public keys, each of {KEY_LENGTH} characters; xbus keys show prints one",
        default=(),
        read=lambda keys: tuple(sorted(set(keys))),
        shape=FieldShape.LINES,
        means="Public keys for encrypted connections, one a line.",
    )
}

WATCH: Fields = {
    "absent_minutes": replace(MINUTES, means="Minutes of absence, while something waits, before health tells of it."),
    "parked_minutes": replace(MINUTES, means="Minutes for which something is parked before health tells of it."),
}

LIMIT_MEANS: Mapping[str, str] = {
    "items_per_second": "Items that the front takes in a second.",
    "bytes_per_second": "Bytes of items that the front takes in a second.",
    "open_envelopes": "Envelopes that are open at once.",
    "envelope_events": "Events of one envelope.",
    "calls_in_flight": "Calls that wait for their answers.",
    "bytes_in_flight": "Bytes of the calls that wait for their answers.",
}

LIMITS: Fields = {name: replace(COUNT, means=LIMIT_MEANS.get(name, "")) for name in LIMIT_NAMES}

_READER = ReaderSpec("", frozenset())

READING: Fields = {
    "ranges": replace(
        INSTANCES["instances"], default=_READER.ranges, means="With how many ranges it begins; its programs share them."
    ),
    "lease": TableKey(
        lambda value: is_number(value, YEAR) and value >= 1,
        f"a number of seconds from 1 to {YEAR}, which is a year",
        default=_READER.lease,
        read=float,
        shape=FieldShape.NUMBER,
        means="Seconds after which the ranges of a silent program are given away.",
    ),
    "batch_items": replace(COUNT, default=_READER.batch_items, means="The most items of a batch."),
    "batch_bytes": replace(COUNT, default=_READER.batch_bytes, means="The bytes at which a batch ends."),
    "batch_wait": replace(
        SECONDS, default=_READER.batch_wait, read=float, means="Seconds that a batch waits for more items."
    ),
    "keeps": replace(SWITCH, default=_READER.keeps, means="Retention waits until it has read."),
}

LAGGING: Fields = {
    "max_lag": LAG,
    "when_behind": choice(
        "alarm", "detach", "skip", means="Beyond max_lag: tell people, take it off the bus, or have it do without."
    ),
}

MAKING: Fields = {
    "new_types": TableKey(
        is_new_types,
        'the beginning of names and a star, such as "shop_*", or "*" for any name',
        default="",
        means="Event types that its emitters make by sending to them: the beginning of their names, and a star.",
    ),
    "clients": replace(
        NAME,
        required=False,
        shape=FieldShape.CHOICE,
        refers_to=Section.EMITTER_PROFILE,
        means="Its emitters make API tokens, each for an emitter of this profile.",
    ),
    "keep_keys": replace(SPAN, means="How long the keys of removed envelopes are kept, such as 365d, else for ever."),
}

FORMER: Fields = {"renamed_from": replace(NAME, required=False)}

IMMEDIATE: Fields = {"immediate_reply": replace(SWITCH, means="Its emitter waits for what a consumer replies.")}

WORK: Fields = {
    "call": replace(TEXT, means="module:function that a run calls."),
    "command": TableKey(
        is_list_of_texts,
        'a list of texts, a program and its arguments, such as ["report", "--nightly"]',
        default=(),
        read=tuple,
        shape=FieldShape.LINES,
        means="A program and its arguments, one a line, in the place of call.",
    ),
}

TIME: Fields = {
    "cron": replace(TEXT, means="When it runs: minute, hour, day, month, day of the week, such as 0 3 * * *."),
    "timezone": replace(NAME, required=False, default="UTC", means="The zone of cron, such as Europe/Paris."),
    "missed": replace(
        choice(*Missed, means="What becomes of times at which nobody could look: the last is made up for, all, none."),
        default=Missed.ONCE,
        read=Missed,
    ),
}

BATCHES: Fields = {
    "batch_items": replace(READING["batch_items"], default=BOT_BATCH_ITEMS),
    "batch_bytes": replace(READING["batch_bytes"], default=BOT_BATCH_BYTES),
    "batch_wait": READING["batch_wait"],
}

RUNS: Fields = {
    "instances": replace(INSTANCES["instances"], means="So many of its runs may be under way at once."),
    "max_seconds": TableKey(
        lambda value: is_number(value, YEAR) and value > 0,
        f"a number of seconds above 0, up to {YEAR}, which is a year",
        default=BOT_SECONDS,
        shape=FieldShape.NUMBER,
        means="Seconds after which a run is ended.",
    ),
    "attempts": replace(COUNT, default=BOT_ATTEMPTS, means="How often a run is tried before it has failed."),
    "settings": TableKey(
        lambda value: isinstance(value, dict) and is_plain(value),
        "a table of texts, numbers, booleans, lists and tables",
        default={},
        shape=FieldShape.TABLE,
        means="What each run gets, as JSON.",
    ),
    "description": replace(TEXT, means="What it is for."),
}

CALLBACK: Fields = {
    "format": choice("json", "cloudevents", "routemaster", means="The format of the bodies of calls."),
    "verify": replace(SWITCH, default=True, means="Check the certificate of the subscriber."),
    "max": replace(COUNT, default=SubscriptionSpec.max, means=f"The most items of a batch, up to {MOST_ITEMS:,}."),
    "timeout": TableKey(
        lambda value: type(value) is int and 0 <= value <= MOST_MILLISECONDS,
        f"a whole number of milliseconds from 0 to {MOST_MILLISECONDS}, which is an hour",
        default=SubscriptionSpec.timeout,
        shape=FieldShape.NUMBER,
        means="Milliseconds that a batch waits for more items.",
    ),
    "ranges": replace(
        INSTANCES["instances"], means="With how many ranges it begins; with one, all comes in the order of the log."
    ),
    "keeps": replace(SWITCH, default=True, means="Retention waits until it has been called."),
}

SECTIONS: Mapping[Section, Fields] = {
    Section.EVENT_TYPE: {"name": NAME, **IMMEDIATE, "node": TABLES, **ISOLATION, **SECRET, **KEEPING, **FORMER},
    Section.SERVICE: {"name": NAME, "kind": KIND, **FAILING, **FORMER},
    Section.READER: {
        "name": NAME,
        "event_types": replace(NAMES, required=True, refers_to=Section.EVENT_TYPE, means="What it reads."),
        **READING,
        **LAGGING,
        "start": replace(START, means="Where a new reader begins."),
        **FORMER,
    },
    Section.ROLE: {
        "login": NAME,
        "service": OF_SERVICE,
        **ORDER,
        **INSTANCES,
        **WATCH,
        **LAGGING,
        **KEYS,
        "start": START,
        **FORMER,
    },
    Section.EMITTER_PROFILE: {
        "name": NAME,
        "event_types": replace(NAMES, refers_to=Section.EVENT_TYPE, means="What its emitters may send."),
        **MAKING,
        **LIMITS,
        **FORMER,
    },
    Section.EMITTER: {
        "login": NAME,
        "profile": replace(NAME, shape=FieldShape.CHOICE, refers_to=Section.EMITTER_PROFILE),
        **KEYS,
        **LIMITS,
        **FORMER,
    },
    Section.BOT: {
        "name": NAME,
        **WORK,
        **TIME,
        "reads": replace(NAMES, refers_to=Section.EVENT_TYPE, means="What it gets batches of, in the place of cron."),
        **BATCHES,
        "emits": replace(NAMES, refers_to=Section.EVENT_TYPE, means="What its runs may put."),
        "runners": replace(OF_SERVICE, required=False, means="The service whose programs run it."),
        **RUNS,
        **FORMER,
    },
    Section.SUBSCRIPTION: {
        "name": NAME,
        "event_types": replace(NAMES, required=True, refers_to=Section.EVENT_TYPE, means="What it gets."),
        "url": replace(TEXT, required=True, means="The address that is called."),
        **CALLBACK,
        **LAGGING,
        **RETRY,
        "secret": replace(TEXT, default=None, means="Signs the calls; nothing shows it, and empty leaves it as it is."),
        "start": replace(START, means="Where a new subscription begins."),
        **FORMER,
    },
}
