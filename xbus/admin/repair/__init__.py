"""Parked work: a person reads it and puts it right."""
