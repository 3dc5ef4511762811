"""The rules that bots must keep before they are accepted; pure."""

import json
from collections.abc import Collection, Iterator, Mapping

from xbus.broker.journal.configuration.entries import BotSpec, BusSpec, ConfigurationProblem, Section
from xbus.errors import ConfigurationError
from xbus.slots import Schedule

MOST_SETTINGS_BYTES = 65_536
"""The bytes of a bot's settings as JSON: each run gets them."""


def find_bot_problems(
    ever: BusSpec, bus: BusSpec, known: Collection[tuple[Section, str]]
) -> Iterator[ConfigurationProblem]:
    """Iterate over the faults of the bots of ``bus``.

    Args:
        ever: all entries that there are and were.
        bus: the wished entries.
        known: section and name of all entries that there will be.
    """
    kinds = {service.name: service.kind for service in ever.with_all(bus).services.values()}
    runners = [name for name, kind in kinds.items() if kind == "runner" and (Section.SERVICE, name) in known]
    for bot in bus.bots.values():
        place = (Section.BOT, bot.name)
        problems = (*_work_problems(bot), *_reading_problems(bot), *_runner_problems(bot, kinds, runners))
        for key, sentence in problems:
            yield ConfigurationProblem((*place, key), sentence)
        if bot.emitter in ever.with_all(bus).emitters or bot.emitter in ever.with_all(bus).profiles:
            sentence = f'an emitter or a profile is called "{bot.emitter}", as the bot\'s own has to be'
            yield ConfigurationProblem((*place, "name"), sentence)
    own = {bot.emitter for bot in ever.with_all(bus).bots.values() if bot.reads}
    for section in (Section.READER, Section.SERVICE):
        for name in own & bus.section(section).keys():
            sentence = f'"{name}" is the name of the reader that the bus has for a bot: take another name'
            yield ConfigurationProblem((section, name, "name"), sentence)
    for bot in bus.bots.values():
        if bot.reads and (bot.emitter in ever.readers or bot.emitter in ever.services):
            sentence = f'a reader or a service is called "{bot.emitter}", as the bot\'s own has to be'
            yield ConfigurationProblem((Section.BOT, bot.name, "name"), sentence)


def _work_problems(bot: BotSpec) -> Iterator[tuple[str, str]]:
    if bool(bot.call) == bool(bot.command):
        yield "call", "a bot has either call or command"
    module, colon, function = bot.call.partition(":")
    if bot.call and not (colon and _is_dotted(module) and _is_dotted(function)):
        yield "call", f'call must be "module:function", and is "{bot.call}"'
    if bot.cron:
        try:
            Schedule(bot.cron, bot.timezone)
        except ConfigurationError as error:
            yield ("timezone" if error.code == "unknown_timezone" else "cron"), f"{error.cause}: {error.next_step}"
    if len(json.dumps(bot.settings, ensure_ascii=False).encode()) > MOST_SETTINGS_BYTES:
        yield "settings", f"settings are larger than {MOST_SETTINGS_BYTES} bytes of JSON"


def _reading_problems(bot: BotSpec) -> Iterator[tuple[str, str]]:
    if bot.reads and bot.cron:
        yield "reads", "a bot has either cron or reads"
    plain = BotSpec(bot.name)
    for field in ("batch_items", "batch_bytes", "batch_wait"):
        if not bot.reads and getattr(bot, field) != getattr(plain, field):
            yield field, f"{field} is of meaning for bots with reads only"
    if bot.reads and bot.missed != plain.missed:
        yield "missed", "missed is of meaning for bots with cron only: batches are never missed"
    if circle := sorted(bot.reads & bot.emits):
        yield "emits", f'the bot reads "{circle[0]}", and would read without end what it emits'


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _runner_problems(bot: BotSpec, kinds: Mapping[str, str], runners: Collection[str]) -> Iterator[tuple[str, str]]:
    if bot.runners is None and len(runners) != 1:
        there = f"there are {len(runners)}" if runners else "there is none"
        yield "runners", f"runners must name a service of kind runner where there is not exactly one ({there})"
    if bot.runners is not None and kinds.get(bot.runners, "runner") != "runner":
        yield "runners", f'service "{bot.runners}" is a {kinds[bot.runners]}, and no runner'
