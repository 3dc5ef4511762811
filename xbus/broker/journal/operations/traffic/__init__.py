"""Reads the last events that emitters sent, by event type, for comparisons with another bus."""
