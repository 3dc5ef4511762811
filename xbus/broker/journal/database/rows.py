"""Names the types of rows that are read by the names of their columns, of which SQLAlchemy knows no types."""

from typing import TypeAlias

import sqlalchemy as sa

NamedRow: TypeAlias = sa.Row[*tuple[object, ...]]
"""A row whose columns are read by name. The columns of a short SELECT have types instead, and are unpacked."""

NamedRows: TypeAlias = sa.Select[*tuple[object, ...]]
"""A SELECT of such rows."""
