"""Turns the bodies of requests into items, part by part where their format allows it."""

from xbus.http.bodies.body import Body, Room
from xbus.http.bodies.formats import FORMATS, items_of, media_type
from xbus.http.bodies.json_text import parse_json

__all__ = ["FORMATS", "Body", "Room", "items_of", "media_type", "parse_json"]
