"""Fires bots for a test: a slot of its cron, or as a person does."""

from datetime import UTC, datetime, timedelta

from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.log.bots import read_progress
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.operations.bots import find_bot, fire_bot
from xbus.broker.journal.writes.bots import FireSlots
from xbus.errors import Refused
from xbus.slots import Schedule
from xbus.testing.broker import VirtualBroker
from xbus.testing.journal import Database


async def fire(
    broker: VirtualBroker, database: Database, name: str, slot: datetime | None, now: datetime
) -> datetime | None:
    """Make a run of a slot, unless it had its turn; give the slot, None for a bot without cron.

    Args:
        slot: None for the next one.

    Raises:
        Refused: no bot is called so (``unknown_name``), it has no such slot (``no_slot``), or it reads (``bot_reads``).
    """
    bot_id = database.read(find_bot, name)
    bot = database.read(read_catalog).bots[bot_id]
    if not bot.cron:
        if slot is not None:
            raise Refused(f'the bot "{bot.name}" has no cron', "fire it without a slot", code="no_slot")
        database.write(fire_bot, bot.name, None, RepairDecision("the test", "", now))
        return None
    schedule = Schedule(bot.cron, bot.timezone)
    until = database.read(read_progress, [bot.id])[bot.id].slots_until
    chosen = schedule.after(until) if slot is None else slot.astimezone(UTC)
    if chosen is None or schedule.after(chosen - timedelta(seconds=1)) != chosen:
        raise Refused(
            f'{slot:%Y-%m-%d %H:%M:%S %Z} is no slot of "{bot.name}" ({bot.cron}, {bot.timezone})',
            "name a moment at which its cron is due, with its time zone",
            code="no_slot",
        )
    if chosen > until:
        await broker.fire(FireSlots(bot.id, [chosen], chosen, now))
    return chosen
