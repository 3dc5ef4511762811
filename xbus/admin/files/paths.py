"""Paths from a record to an element in it: the part of XPath that the standard library finds the same elements by."""

import re
from collections.abc import Iterator
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


ANY_NAMESPACE = "{*}"
"""Stands before a name that counts in any namespace, and in none."""

_ATTRIBUTE = re.compile(rf"(?:(?P<path>.+)/)?@(?P<name>{_NAME})")


def is_called(tag: str, name: str) -> bool:
    """Check whether a tag, ``{namespace}name`` or ``name``, has the name that a descriptor says."""
    return tag == name or (name.startswith(ANY_NAMESPACE) and tag.rpartition("}")[2] == name[len(ANY_NAMESPACE) :])


class ElementPath:
    """A path such as ``address/city``, ``.//line[2]``, ``contact[@kind='mail']/address`` or ``amount/@currency``.

    Args:
        path: as in the descriptor.

    Raises:
        ValueError: the path has steps that this class can't follow.

    Attributes:
        attribute: the name of the attribute that it leads to; None where it leads to an element.
    """

    def __init__(self, path: str) -> None:
        found = _ATTRIBUTE.fullmatch(path)
        self.attribute = found["name"] if found else None
        self._elements = (found["path"] or ".") if found else path
        if not _PATH.fullmatch(self._elements):
            raise ValueError(f'the path "{path}" is none that xbus emit can follow')
        self.path = path

    def __repr__(self) -> str:
        return f"ElementPath({self.path!r})"

    def first_in(self, record: Element) -> Element | None:
        """Find the first element at the path, in the order of the file; None without any."""
        return next(self._found_in(record), None)

    def attribute_in(self, record: Element) -> str | None:
        """Find the first attribute at the path, in the order of the file; None without any."""
        name = self.attribute or ""
        return next(
            (
                value
                for element in self._found_in(record)
                for key, value in element.attrib.items()
                if is_called(key, name)
            ),
            None,
        )

    def _found_in(self, record: Element) -> Iterator[Element]:
        if "//" not in self._elements:
            return record.iterfind(self._elements)
        found = set(record.iterfind(self._elements))
        return (element for element in record.iter() if element in found)
