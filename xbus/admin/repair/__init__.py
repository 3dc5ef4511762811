"""Parked work: a person reads it and puts it right. Callers open the transaction of each action."""
