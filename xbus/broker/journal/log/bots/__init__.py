"""Bots: ``entries`` has them as the catalog does, ``runs`` has what the broker asks about their runs."""
