"""Journals that an earlier version has made, and what reads them back; ``make`` made them."""
