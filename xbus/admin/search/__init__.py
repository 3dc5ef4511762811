"""Looks into the items that the journal has: those of an envelope, and those of a type that match conditions."""
