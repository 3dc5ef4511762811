"""The input descriptors that the database holds."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from xbus.model import input_descriptor


@dataclass(frozen=True)
class DescriptorSummary:
    """An input descriptor without its content; ``size`` in bytes."""

    name: str
    mimetype: str | None
    size: int


def list_descriptors(connection: Connection) -> list[DescriptorSummary]:
    """List all descriptors, by name."""
    columns = input_descriptor.c
    rows = connection.execute(
        select(columns.name, columns.mimetype, func.length(columns.content).label("size")).order_by(columns.name)
    )
    return [DescriptorSummary(row.name, row.mimetype, row.size) for row in rows]


def read_descriptor(connection: Connection, name: str) -> bytes | None:
    """Read the content of a descriptor; None if no descriptor has this name."""
    content = select(input_descriptor.c.content).where(input_descriptor.c.name == name)
    found = connection.execute(content).scalar_one_or_none()
    return None if found is None else bytes(found)
