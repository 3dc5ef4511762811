"""Turns the bodies of requests into items, part by part where their format allows it."""

from xbus.http.bodies.body import Body, Room, off_loop, read_json
from xbus.http.bodies.formats import FORMATS, items_of
from xbus.http.bodies.media_types import MediaType

__all__ = ["FORMATS", "Body", "MediaType", "Room", "items_of", "off_loop", "read_json"]
