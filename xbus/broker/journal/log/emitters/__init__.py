"""Emitters: ``entries`` has them as the catalog does."""
