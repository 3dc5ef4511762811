"""The bus as a TOML file: read with the line of everything in it, and written."""

from xbus.admin.bus_file.reader import BusFile, LineProblem, read, write, write_tables

__all__ = ["BusFile", "LineProblem", "read", "write", "write_tables"]
