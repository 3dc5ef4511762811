"""Paths from a record to an element in it: the part of XPath that the standard library finds the same elements by."""

import re
from xml.etree.ElementTree import Element

_NAME = r"(?:\{[^}]*\})?[^\W\d][\w.-]*"
_TEXT = r"""(?:"[^"]*"|'[^']*')"""
# A number counts among all of a name, so it comes first; behind * it would count something else than XPath does.
_STEP = (
    rf"(?:{_NAME}(?:\[(?:[1-9]\d*|last\(\)(?:-[1-9]\d*)?)\])?|\*)"
    rf"(?:\[(?:@{_NAME}(?:={_TEXT})?|{_NAME}(?:={_TEXT})?|\.={_TEXT})\])*"
)
NAME = re.compile(_NAME)
"""The name of an element, with its namespace in braces where it has one."""

_PATH = re.compile(rf"\.|(?:\.//?)?{_STEP}(?://?{_STEP})*")


class ElementPath:
    """A path such as ``name``, ``address/city``, ``.//line[2]`` or ``contact[@kind='mail']/address``.

    Args:
        path: as in the descriptor.

    Raises:
        ValueError: the path has steps that this class can't follow.
    """

    def __init__(self, path: str) -> None:
        if not _PATH.fullmatch(path):
            raise ValueError(f'the path "{path}" is none that xbus emit can follow')
        self.path = path

    def __repr__(self) -> str:
        return f"ElementPath({self.path!r})"

    def first_in(self, record: Element) -> Element | None:
        """Find the first element at the path, in the order of the file; None without any."""
        if "//" not in self.path:
            return record.find(self.path)
        found = set(record.iterfind(self.path))
        return next((element for element in record.iter() if element in found), None)
