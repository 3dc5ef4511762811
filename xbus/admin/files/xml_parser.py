"""The parser of XML from elsewhere: it declares nothing, loads nothing and expands nothing."""

from typing import NoReturn
from xml.parsers import expat

from xbus.admin.files.entry import Unreadable

DEEPEST = 200
"""Elements within elements."""


def safe_parser(encoding: str | None = None) -> "expat.XMLParserType":
    """A parser that refuses whatever could make more of a file than it holds.

    Args:
        encoding: what to read it by instead of what it declares.

    Raises:
        Unreadable: while it parses: an entity is declared or meant that is not of XML itself.
    """
    parser = expat.ParserCreate(encoding, "}")
    parser.buffer_text = True
    parser.ordered_attributes = True

    def refuse(what: str) -> NoReturn:
        raise Unreadable(parser.CurrentLineNumber, f"{what}, which is not read for safety")

    def begin_doctype(name: str, system: str | None, public: str | None, has_subset: int) -> None:
        if has_subset:
            refuse("the DOCTYPE holds declarations")

    def declare_entity(*_: object) -> None:
        refuse("an entity is declared")

    def skip_entity(name: str, is_parameter: bool) -> None:
        refuse(f"the entity &{name}; is declared elsewhere")

    parser.StartDoctypeDeclHandler = begin_doctype
    parser.EntityDeclHandler = declare_entity
    parser.SkippedEntityHandler = skip_entity
    return parser


def qualified(name: str) -> str:
    """A name as the parser tells it, written as ``{namespace}name``."""
    return "{" + name if "}" in name else name


def paired(attributes: list[str]) -> dict[str, str]:
    """The attributes of an element as the parser tells them, by their names."""
    return {qualified(name): value for name, value in zip(attributes[::2], attributes[1::2], strict=True)}


def malformed(error: expat.ExpatError) -> Unreadable:
    """The same with a sentence that names no position twice."""
    return Unreadable(error.lineno, f"this is not XML ({expat.ErrorString(error.code)})")
